//! The `post_processor` of tokenizer.json: which tokens are put around a text.

use crate::tokenizer::Framing;
use serde_json::Value;

/// What the post-processor puts around one text; `None` where it doesn't say anything about that.
pub(super) fn read(processor: &Value) -> Option<Framing> {
    match processor.get("type")?.as_str()? {
        "TemplateProcessing" => template(processor),
        "BertProcessing" | "RobertaProcessing" => {
            let token = |name: &str| processor.get(name)?.get(1)?.as_u64()?.try_into().ok();
            Some(Framing { before: vec![token("cls")?], after: vec![token("sep")?] })
        }
        "Sequence" => processor.get("processors")?.as_array()?.iter().find_map(read),
        _ => None,
    }
}

/// `single` is a list of special tokens with the text somewhere among them.
fn template(processor: &Value) -> Option<Framing> {
    let mut framing = Framing::default();
    let mut side = &mut framing.before;
    for piece in processor.get("single")?.as_array()? {
        match piece.get("SpecialToken") {
            Some(token) => side.extend(special_ids(processor, token.get("id")?.as_str()?)?),
            None => side = &mut framing.after,
        }
    }
    Some(framing)
}

fn special_ids(processor: &Value, name: &str) -> Option<Vec<u32>> {
    let ids = processor.get("special_tokens")?.get(name)?.get("ids")?.as_array()?;
    ids.iter().map(|id| id.as_u64()?.try_into().ok()).collect()
}
