//! The layout of tokenizer.json. Token texts are borrowed from the file where they have no escapes.

use crate::error::TextError;
use crate::vocabulary::{Kind, Vocabulary};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// More ids than any vocabulary has; a larger one is a lie that would cost memory.
const MAX_TOKENS: u32 = 4 << 20;

#[derive(Deserialize)]
pub(super) struct TokenizerFile<'f> {
    #[serde(default)]
    pub(super) added_tokens: Vec<AddedEntry>,
    pub(super) normalizer: Option<Value>,
    pub(super) pre_tokenizer: Option<Value>,
    pub(super) post_processor: Option<Value>,
    pub(super) decoder: Option<Value>,
    #[serde(borrow)]
    pub(super) model: ModelEntry<'f>,
}

#[derive(Deserialize)]
#[allow(clippy::struct_excessive_bools)] // the file's own
pub(super) struct AddedEntry {
    pub(super) id: u32,
    pub(super) content: String,
    #[serde(default)]
    pub(super) single_word: bool,
    #[serde(default)]
    pub(super) lstrip: bool,
    #[serde(default)]
    pub(super) rstrip: bool,
    #[serde(default)]
    pub(super) normalized: bool,
    #[serde(default)]
    pub(super) special: bool,
}

/// The `model` of any type; which fields are there depends on the type.
#[derive(Deserialize)]
pub(super) struct ModelEntry<'f> {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(borrow)]
    pub(super) vocab: VocabEntry<'f>,
    #[serde(borrow)]
    pub(super) merges: Option<Vec<MergeEntry<'f>>>,
    pub(super) unk_token: Option<String>,
    pub(super) unk_id: Option<u32>,
    #[serde(default)]
    pub(super) fuse_unk: bool,
    #[serde(default)]
    pub(super) byte_fallback: bool,
    #[serde(default)]
    pub(super) ignore_merges: bool,
    pub(super) continuing_subword_prefix: Option<String>,
    pub(super) end_of_word_suffix: Option<String>,
    pub(super) max_input_chars_per_word: Option<usize>,
}

/// The algorithm of a `model`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelKind {
    Bpe,
    Unigram,
    WordPiece,
    Other,
}

impl ModelEntry<'_> {
    /// The model's type; old files don't name it, but their fields tell.
    pub(super) fn kind(&self) -> ModelKind {
        match (self.kind.as_deref(), &self.vocab) {
            (Some("BPE"), _) => ModelKind::Bpe,
            (Some("Unigram"), _) | (None, VocabEntry::Scored(_)) => ModelKind::Unigram,
            (Some("WordPiece"), _) => ModelKind::WordPiece,
            (Some(_), _) => ModelKind::Other,
            (None, _) if self.merges.is_some() => ModelKind::Bpe,
            (None, _) => ModelKind::WordPiece,
        }
    }

    pub(super) fn name(&self) -> &str {
        self.kind.as_deref().unwrap_or("unnamed")
    }
}

/// `{"token": id}` or `[["token", score]]`.
pub(super) enum VocabEntry<'f> {
    Numbered(Vec<(Cow<'f, str>, u32)>),
    Scored(Vec<(Cow<'f, str>, f32)>),
}

/// `"left right"` or `["left", "right"]`.
pub(super) struct MergeEntry<'f>(pub(super) Cow<'f, str>, pub(super) Cow<'f, str>);

/// A string, borrowed where it can be.
struct Text<'f>(Cow<'f, str>);

impl TokenizerFile<'_> {
    /// All tokens by id: the model's, then the added ones over them.
    pub(super) fn vocabulary(&self) -> Result<Vocabulary, TextError> {
        let mut tokens: Vec<(&str, Kind)> = Vec::new();
        match &self.model.vocab {
            VocabEntry::Scored(list) => tokens.extend(list.iter().map(|(text, _)| (&**text, Kind::Normal))),
            VocabEntry::Numbered(map) => {
                map.iter().try_for_each(|(text, id)| put(&mut tokens, *id, text, Kind::Normal))?;
            }
        }
        for entry in &self.added_tokens {
            let kind = if entry.special { Kind::Control } else { Kind::UserDefined };
            put(&mut tokens, entry.id, &entry.content, kind)?;
        }
        Vocabulary::new(tokens.into_iter())
    }
}

fn put<'f>(tokens: &mut Vec<(&'f str, Kind)>, id: u32, text: &'f str, kind: Kind) -> Result<(), TextError> {
    if id >= MAX_TOKENS {
        return Err(TextError::Inconsistent(format!(
            "token {text:?} has the id {id}, past the limit of {MAX_TOKENS}"
        )));
    }
    let index = id as usize;
    if index >= tokens.len() {
        tokens.resize(index + 1, ("", Kind::Unused));
    }
    tokens[index] = (text, kind);
    Ok(())
}

impl<'de: 'f, 'f> Deserialize<'de> for Text<'f> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

impl<'de: 'f, 'f> Deserialize<'de> for VocabEntry<'f> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct VocabVisitor;
        impl<'de> Visitor<'de> for VocabVisitor {
            type Value = VocabEntry<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tokens with their ids, or a list of tokens with their scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<VocabEntry<'de>, A::Error> {
                let mut tokens = Vec::new();
                while let Some((Text(text), id)) = map.next_entry()? {
                    tokens.push((text, id));
                }
                Ok(VocabEntry::Numbered(tokens))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<VocabEntry<'de>, A::Error> {
                let mut tokens = Vec::new();
                while let Some((Text(text), score)) = list.next_element()? {
                    tokens.push((text, score));
                }
                Ok(VocabEntry::Scored(tokens))
            }
        }
        deserializer.deserialize_any(VocabVisitor)
    }
}

impl<'de: 'f, 'f> Deserialize<'de> for MergeEntry<'f> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MergeVisitor;
        impl<'de> Visitor<'de> for MergeVisitor {
            type Value = MergeEntry<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a merge: \"left right\" or [\"left\", \"right\"]")
            }

            fn visit_borrowed_str<E: Error>(self, merge: &'de str) -> Result<MergeEntry<'de>, E> {
                let (left, right) = halves(merge)?;
                Ok(MergeEntry(left.into(), right.into()))
            }

            fn visit_str<E: Error>(self, merge: &str) -> Result<MergeEntry<'de>, E> {
                let (left, right) = halves(merge)?;
                Ok(MergeEntry(left.to_owned().into(), right.to_owned().into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<MergeEntry<'de>, A::Error> {
                let mut side = || list.next_element()?.ok_or_else(|| Error::custom("a merge has two sides"));
                let (Text(left), Text(right)) = (side()?, side()?);
                Ok(MergeEntry(left, right))
            }
        }
        deserializer.deserialize_any(MergeVisitor)
    }
}

fn halves<E: Error>(merge: &str) -> Result<(&str, &str), E> {
    merge.split_once(' ').ok_or_else(|| E::custom(format!("the merge {merge:?} has no space")))
}
