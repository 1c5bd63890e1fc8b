//! Normalising: rewriting text before it is cut, as the model's training data was.

use crate::charsmap::Charsmap;
use crate::error::TextError;
use crate::pattern::Pattern;
use std::borrow::Cow;
use std::ops::Range;
use unicode_categories::UnicodeCategories;
use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

/// Rules of a file can make a text longer without end; no real ones make the longest text four times as long.
const MAX_BYTES: usize = 64 << 20;

/// One way to rewrite text.
pub(crate) enum Normalizer {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    /// Removes combining marks; useful after a decomposition.
    StripAccents,
    /// Removes white space at the ends.
    Strip {
        left: bool,
        right: bool,
    },
    /// Puts a text before any that is not empty.
    Prepend(String),
    Replace {
        pattern: Target,
        with: String,
    },
    Bert(Bert),
    Charsmap(Charsmap),
    /// One after the other.
    Sequence(Vec<Normalizer>),
}

/// What [`Normalizer::Replace`] looks for.
pub(crate) enum Target {
    Text(String),
    Pattern(Pattern),
}

/// BERT's cleaning.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // its own four switches
pub(crate) struct Bert {
    /// Drops control characters and writes all white space as spaces.
    pub(crate) clean_text: bool,
    /// Puts spaces around ideographs, so that each is a word.
    pub(crate) space_ideographs: bool,
    pub(crate) strip_accents: bool,
    pub(crate) lowercase: bool,
}

impl Normalizer {
    /// Rewrites `text`, which is handed back untouched where there is nothing to do.
    pub(crate) fn apply<'t>(&self, text: Cow<'t, str>) -> Result<Cow<'t, str>, TextError> {
        Ok(match self {
            Normalizer::Sequence(all) => return all.iter().try_fold(text, |text, one| one.apply(text)),
            _ if text.is_empty() => text,
            // Every normal form leaves ASCII alone.
            Normalizer::Nfc | Normalizer::Nfd | Normalizer::Nfkc | Normalizer::Nfkd if text.is_ascii() => {
                text
            }
            Normalizer::Nfc => text.nfc().collect(),
            Normalizer::Nfd => text.nfd().collect(),
            Normalizer::Nfkc => text.nfkc().collect(),
            Normalizer::Nfkd => text.nfkd().collect(),
            Normalizer::Lowercase => text.chars().flat_map(char::to_lowercase).collect(),
            Normalizer::StripAccents => without_accents(&text),
            Normalizer::Strip { left, right } => strip(&text, *left, *right).to_owned().into(),
            Normalizer::Prepend(prefix) => Cow::Owned(format!("{prefix}{text}")),
            Normalizer::Replace { pattern, with } => replace(pattern, with, &text)?.into(),
            Normalizer::Bert(bert) => bert.apply(&text).into(),
            Normalizer::Charsmap(charsmap) => charsmap.apply(&text, MAX_BYTES)?.into(),
        })
    }
}

fn without_accents<'t>(text: &str) -> Cow<'t, str> {
    text.chars().filter(|character| !is_combining_mark(*character)).collect()
}

fn strip(text: &str, left: bool, right: bool) -> &str {
    let text = if left { text.trim_start() } else { text };
    if right { text.trim_end() } else { text }
}

fn replace(pattern: &Target, with: &str, text: &str) -> Result<String, TextError> {
    let mut replaced = String::with_capacity(text.len());
    let mut done = 0;
    let mut found = |range: Range<usize>| {
        if replaced.len() <= MAX_BYTES {
            replaced.push_str(&text[done..range.start]);
            replaced.push_str(with);
            done = range.end;
        }
    };
    match pattern {
        Target::Text(from) => {
            for (start, _) in text.match_indices(from.as_str()) {
                found(start..start + from.len());
            }
        }
        Target::Pattern(pattern) => pattern.each_match(text, |range| {
            found(range);
            Ok(())
        })?,
    }
    replaced.push_str(&text[done..]);
    if replaced.len() > MAX_BYTES {
        return Err(TextError::TextTooLong { bytes: replaced.len(), limit: MAX_BYTES });
    }
    Ok(replaced)
}

impl Bert {
    fn apply(self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        for character in text.chars().filter(|c| !(self.clean_text && is_dropped(*c))) {
            if self.space_ideographs && is_ideograph(character) {
                clean.extend([' ', character, ' ']);
            } else {
                clean.push(if self.clean_text && character.is_whitespace() { ' ' } else { character });
            }
        }
        if self.strip_accents {
            clean = clean.nfd().filter(|character| !character.is_mark_nonspacing()).collect();
        }
        if self.lowercase { clean.chars().flat_map(char::to_lowercase).collect() } else { clean }
    }
}

fn is_dropped(character: char) -> bool {
    match character {
        '\t' | '\n' | '\r' => false,
        '\0' | char::REPLACEMENT_CHARACTER => true,
        _ => character.is_other(),
    }
}

/// The blocks that BERT's authors took for Chinese.
fn is_ideograph(character: char) -> bool {
    matches!(
        character as u32,
        0x4E00..=0x9FFF
            | 0x3400..=0x4DBF
            | 0x20000..=0x2A6DF
            | 0x2A700..=0x2B73F
            | 0x2B740..=0x2B81F
            | 0x2B920..=0x2CEAF
            | 0xF900..=0xFAFF
            | 0x2F800..=0x2FA1F
    )
}

/// Punctuation as BERT and Hugging Face see it: all of ASCII's signs and Unicode's punctuation.
pub(crate) fn is_punctuation(character: char) -> bool {
    character.is_ascii_punctuation() || character.is_punctuation()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bert_cleans_lowercases_and_strips_accents() {
        let bert = Bert { clean_text: true, space_ideographs: true, strip_accents: true, lowercase: true };
        let text = Cow::Borrowed("Héllo\u{0}\tWÖRLD 中文");
        assert_eq!(Normalizer::Bert(bert).apply(text).unwrap(), "hello world  中  文 ");
    }

    #[test]
    fn rules_that_blow_text_up_are_an_error() {
        let blow_up =
            || Normalizer::Replace { pattern: Target::Text("a".to_owned()), with: "a".repeat(10_000) };
        let sequence = Normalizer::Sequence(vec![blow_up(), blow_up(), blow_up()]);
        assert!(matches!(sequence.apply("a".into()), Err(TextError::TextTooLong { .. })));
    }

    #[test]
    fn a_sequence_applies_its_parts_in_order() {
        let target = Target::Text(" ".to_owned());
        let replace = Normalizer::Replace { pattern: target, with: "▁".to_owned() };
        let sequence = Normalizer::Sequence(vec![Normalizer::Prepend("▁".to_owned()), replace]);
        assert_eq!(sequence.apply("a b".into()).unwrap(), "▁a▁b");
        assert_eq!(sequence.apply("".into()).unwrap(), "");
    }
}
