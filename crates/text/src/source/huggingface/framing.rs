//! The `post_processor` of tokenizer.json: which tokens are put around a text, and around a pair of texts.

use crate::tokenizer::{Framing, PairFrame};
use serde_json::Value;

/// What the post-processor puts around texts; `None` where it doesn't say anything about that.
pub(super) fn read(processor: &Value) -> Option<Framing> {
    match processor.get("type")?.as_str()? {
        "TemplateProcessing" => template(processor),
        "BertProcessing" => fixed(processor, 1, 1),
        "RobertaProcessing" => fixed(processor, 2, 0),
        "Sequence" => processor.get("processors")?.as_array()?.iter().find_map(read),
        _ => None,
    }
}

/// A class token before, and separators: one after every text, `between` of them between two.
fn fixed(processor: &Value, between: usize, second_type: u8) -> Option<Framing> {
    let token = |name: &str| processor.get(name)?.get(1)?.as_u64()?.try_into().ok();
    let (before, after) = (vec![token("cls")?], vec![token("sep")?]);
    let between = vec![after[0]; between];
    let pair = PairFrame { before: before.clone(), between, after: after.clone(), second_type };
    Some(Framing { before, after, pair: Some(pair) })
}

/// `single` is a list of special tokens with the text somewhere among them, `pair` one with two.
fn template(processor: &Value) -> Option<Framing> {
    let (mut sides, _) = sides(processor, "single")?;
    let after = if sides.len() > 1 { sides.swap_remove(1) } else { Vec::new() };
    Some(Framing { before: sides.swap_remove(0), after, pair: pair(processor) })
}

fn pair(processor: &Value) -> Option<PairFrame> {
    let (sides, second_type) = sides(processor, "pair")?;
    let [before, between, after] = sides.try_into().ok()?;
    Some(PairFrame { before, between, after, second_type })
}

/// The special tokens before the first text, and after each; and the last text's type.
fn sides(processor: &Value, name: &str) -> Option<(Vec<Vec<u32>>, u8)> {
    let (mut sides, mut kind) = (vec![Vec::new()], 0);
    for piece in processor.get(name)?.as_array()? {
        if let Some(token) = piece.get("SpecialToken") {
            sides.last_mut()?.extend(special_ids(processor, token.get("id")?.as_str()?)?);
        } else {
            sides.push(Vec::new());
            kind = piece.pointer("/Sequence/type_id").and_then(Value::as_u64).unwrap_or(0);
        }
    }
    Some((sides, kind.try_into().ok()?))
}

fn special_ids(processor: &Value, name: &str) -> Option<Vec<u32>> {
    let ids = processor.get("special_tokens")?.get(name)?.get("ids")?.as_array()?;
    ids.iter().map(|id| id.as_u64()?.try_into().ok()).collect()
}
