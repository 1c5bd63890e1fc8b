//! The `normalizer` of tokenizer.json.

use crate::charsmap::Charsmap;
use crate::error::TextError;
use crate::normalizer::{Bert, Normalizer, Target};
use crate::pattern::Pattern;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(tag = "type")]
#[allow(clippy::upper_case_acronyms)] // the file's spelling
enum Entry {
    Sequence { normalizers: Vec<Value> },
    NFC,
    NFD,
    NFKC,
    NFKD,
    Lowercase,
    StripAccents,
    Strip { strip_left: bool, strip_right: bool },
    Prepend { prepend: String },
    Replace { pattern: PatternEntry, content: String },
    BertNormalizer(BertEntry),
    Precompiled { precompiled_charsmap: String },
}

#[derive(Deserialize)]
struct BertEntry {
    clean_text: bool,
    handle_chinese_chars: bool,
    strip_accents: Option<bool>,
    lowercase: bool,
}

/// `{"String": " "}` or `{"Regex": "\\s"}`.
#[derive(Deserialize)]
pub(super) enum PatternEntry {
    String(String),
    Regex(String),
}

/// Reads one part of the file, naming its type where that is the trouble.
pub(super) fn entry<T: for<'de> Deserialize<'de>>(part: &'static str, value: Value) -> Result<T, TextError> {
    let name = value.get("type").and_then(Value::as_str).unwrap_or("unnamed").to_owned();
    serde_json::from_value(value)
        .map_err(|error| TextError::Unsupported { part, name: format!("{name} ({error})") })
}

pub(super) fn build(value: Value) -> Result<Normalizer, TextError> {
    Ok(match entry("normalizer", value)? {
        Entry::Sequence { normalizers } => {
            Normalizer::Sequence(normalizers.into_iter().map(build).collect::<Result<_, _>>()?)
        }
        Entry::NFC => Normalizer::Nfc,
        Entry::NFD => Normalizer::Nfd,
        Entry::NFKC => Normalizer::Nfkc,
        Entry::NFKD => Normalizer::Nfkd,
        Entry::Lowercase => Normalizer::Lowercase,
        Entry::StripAccents => Normalizer::StripAccents,
        Entry::Strip { strip_left: left, strip_right: right } => Normalizer::Strip { left, right },
        Entry::Prepend { prepend } => Normalizer::Prepend(prepend),
        Entry::Replace { pattern, content: with } => Normalizer::Replace { pattern: target(pattern)?, with },
        Entry::BertNormalizer(bert) => Normalizer::Bert(Bert {
            clean_text: bert.clean_text,
            space_ideographs: bert.handle_chinese_chars,
            strip_accents: bert.strip_accents.unwrap_or(bert.lowercase),
            lowercase: bert.lowercase,
        }),
        Entry::Precompiled { precompiled_charsmap } => Normalizer::Charsmap(charsmap(&precompiled_charsmap)?),
    })
}

fn charsmap(encoded: &str) -> Result<Charsmap, TextError> {
    let no_base64 =
        |error| TextError::Inconsistent(format!("its normalisation rules are no base64 ({error})"));
    Charsmap::new(&BASE64_STANDARD.decode(encoded).map_err(no_base64)?)
}

fn target(entry: PatternEntry) -> Result<Target, TextError> {
    match entry {
        PatternEntry::String(text) => Ok(Target::Text(text)),
        PatternEntry::Regex(pattern) => Pattern::new(&pattern).map(Target::Pattern),
    }
}
