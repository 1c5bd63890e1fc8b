//! The `decoder` of tokenizer.json.
//!
//! Decoders there are pipelines over lists of strings; here a vocabulary has one spelling, and the pipeline tells which.

use super::file::ModelKind;
use crate::spelling::Spelling;
use serde_json::Value;

/// What the decoder says about the vocabulary.
pub(super) struct Decoded {
    pub(super) spelling: Spelling,
    pub(super) adds_space: bool,
}

pub(super) fn read(decoder: Option<&Value>, model: ModelKind) -> Decoded {
    let steps = decoder.map(flatten).unwrap_or_default();
    let find = |name: &str| steps.iter().copied().find(|step| kind(step) == Some(name));
    let spaces = find("Metaspace").or_else(|| find("Replace"));
    let spelling = match (model, find("ByteLevel"), find("WordPiece"), spaces) {
        (_, Some(_), _, _) => Spelling::ByteLevel,
        (_, _, Some(step), _) => Spelling::ContinuationMarked { tidy: flag(step, "cleanup") },
        (ModelKind::Unigram, ..) | (_, _, _, Some(_)) => Spelling::SentencePiece,
        (ModelKind::WordPiece, ..) => Spelling::ContinuationMarked { tidy: false },
        _ => Spelling::ByteLevel,
    };
    let strips = find("Strip").is_some_and(|step| step.get("start").and_then(Value::as_u64) > Some(0));
    Decoded { spelling, adds_space: strips || find("Metaspace").is_some_and(prepends) }
}

fn kind(step: &Value) -> Option<&str> {
    step.get("type")?.as_str()
}

fn flag(step: &Value, name: &str) -> bool {
    step.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// Whether a `Metaspace` step puts a mark before the text.
fn prepends(step: &Value) -> bool {
    let scheme = step.get("prepend_scheme").and_then(Value::as_str);
    scheme != Some("never") && step.get("add_prefix_space").and_then(Value::as_bool) != Some(false)
}

/// The steps of a decoder, sequences taken apart.
fn flatten(decoder: &Value) -> Vec<&Value> {
    match decoder.get("decoders").and_then(Value::as_array) {
        Some(steps) => steps.iter().flat_map(flatten).collect(),
        None => vec![decoder],
    }
}
