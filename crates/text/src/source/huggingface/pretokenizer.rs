//! The `pre_tokenizer` of tokenizer.json, as steps.

use super::normalizer::{PatternEntry, entry};
use crate::error::TextError;
use crate::normalizer::is_punctuation;
use crate::pattern::Pattern;
use crate::pretokenizer::{Behavior, Delimiter, Prepend, Step};
use crate::source::gguf::words_and_punctuation;
use crate::source::gguf_presets::GPT2;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Entry {
    Sequence { pretokenizers: Vec<Value> },
    ByteLevel(ByteLevelEntry),
    Split { pattern: PatternEntry, behavior: Behavior, invert: bool },
    Metaspace(MetaspaceEntry),
    Digits { individual_digits: bool },
    Punctuation { behavior: Option<Behavior> },
    Whitespace,
    WhitespaceSplit,
    BertPreTokenizer,
    CharDelimiterSplit { delimiter: char },
}

#[derive(Deserialize)]
struct ByteLevelEntry {
    #[serde(default)]
    add_prefix_space: bool,
    use_regex: Option<bool>,
}

#[derive(Deserialize)]
struct MetaspaceEntry {
    replacement: char,
    prepend_scheme: Option<Prepend>,
    add_prefix_space: Option<bool>,
    split: Option<bool>,
}

/// What `Whitespace` takes for words and signs.
const WORDS_AND_SIGNS: &str = r"\w+|[^\w\s]+";

pub(super) fn build(value: Value) -> Result<Vec<Step>, TextError> {
    Ok(match entry("pre-tokenizer", value)? {
        Entry::Sequence { pretokenizers } => {
            let steps = pretokenizers.into_iter().map(build).collect::<Result<Vec<_>, _>>()?;
            steps.into_iter().flatten().collect()
        }
        Entry::ByteLevel(entry) => byte_level(&entry)?,
        Entry::Split { pattern, behavior, invert } => {
            vec![Step::Split { delimiter: Delimiter::Pattern(compile(&pattern)?), behavior, invert }]
        }
        Entry::Metaspace(entry) => metaspace(&entry)?,
        Entry::Digits { individual_digits } => {
            let behavior = if individual_digits { Behavior::Isolated } else { Behavior::Contiguous };
            vec![Step::split(Delimiter::Chars(char::is_numeric), behavior)]
        }
        Entry::Punctuation { behavior } => {
            vec![Step::split(Delimiter::Chars(is_punctuation), behavior.unwrap_or(Behavior::Isolated))]
        }
        Entry::Whitespace => {
            let delimiter = Delimiter::Pattern(Pattern::new(WORDS_AND_SIGNS)?);
            vec![Step::Split { delimiter, behavior: Behavior::Removed, invert: true }]
        }
        Entry::WhitespaceSplit => vec![Step::split(Delimiter::Chars(char::is_whitespace), Behavior::Removed)],
        Entry::BertPreTokenizer => words_and_punctuation(),
        Entry::CharDelimiterSplit { delimiter } => vec![Step::split(literal(delimiter)?, Behavior::Removed)],
    })
}

fn compile(pattern: &PatternEntry) -> Result<Pattern, TextError> {
    match pattern {
        PatternEntry::String(text) => Pattern::new(&fancy_regex::escape(text)),
        PatternEntry::Regex(pattern) => Pattern::new(pattern),
    }
}

fn literal(character: char) -> Result<Delimiter, TextError> {
    compile(&PatternEntry::String(character.to_string())).map(Delimiter::Pattern)
}

fn byte_level(entry: &ByteLevelEntry) -> Result<Vec<Step>, TextError> {
    let mut steps = Vec::new();
    if entry.add_prefix_space {
        steps.push(Step::PrefixSpace);
    }
    if entry.use_regex.unwrap_or(true) {
        steps.push(Step::isolate(GPT2)?);
    }
    steps.push(Step::Bytes);
    Ok(steps)
}

fn metaspace(entry: &MetaspaceEntry) -> Result<Vec<Step>, TextError> {
    let prepend = match entry.add_prefix_space {
        Some(false) => Prepend::Never,
        _ => entry.prepend_scheme.unwrap_or(Prepend::Always),
    };
    let mut steps = vec![Step::Metaspace { replacement: entry.replacement, prepend }];
    if entry.split.unwrap_or(true) {
        steps.push(Step::split(literal(entry.replacement)?, Behavior::MergedWithNext));
    }
    Ok(steps)
}
