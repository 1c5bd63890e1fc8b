//! The `model` of tokenizer.json.

use super::file::{ModelEntry, ModelKind, VocabEntry};
use crate::error::TextError;
use crate::model::{Bpe, Merges, Missing, Model, Ranks, Unigram, Whole, WordPiece};
use crate::vocabulary::Vocabulary;

/// BERT takes longer words as unknown.
const MAX_WORD_CHARS: usize = 100;
/// The prefix is put before every piece that is tried.
const MAX_PREFIX_BYTES: usize = 16;

pub(super) fn build(entry: &ModelEntry<'_>, vocabulary: &Vocabulary) -> Result<Model, TextError> {
    match entry.kind() {
        ModelKind::Bpe => bpe(entry, vocabulary).map(Model::Bpe),
        ModelKind::Unigram => Ok(Model::Unigram(unigram(entry, vocabulary))),
        ModelKind::WordPiece => wordpiece(entry, vocabulary).map(Model::WordPiece),
        ModelKind::Other => Err(TextError::Unsupported { part: "model", name: entry.name().to_owned() }),
    }
}

fn missing(entry: &ModelEntry<'_>, vocabulary: &Vocabulary, unknown: Option<u32>, fuse: bool) -> Missing {
    let bytes = if entry.byte_fallback { vocabulary.byte_tokens() } else { None };
    Missing { bytes, unknown, fuse }
}

fn unknown(entry: &ModelEntry<'_>, vocabulary: &Vocabulary) -> Option<u32> {
    entry.unk_token.as_deref().and_then(|text| vocabulary.id(text))
}

fn bpe(entry: &ModelEntry<'_>, vocabulary: &Vocabulary) -> Result<Bpe, TextError> {
    let affixes = [&entry.continuing_subword_prefix, &entry.end_of_word_suffix];
    if let Some(affix) = affixes.into_iter().flatten().find(|affix| !affix.is_empty()) {
        return Err(TextError::Unsupported { part: "BPE word affix", name: affix.clone() });
    }
    let pairs = entry.merges.iter().flatten().map(|merge| (&*merge.0, &*merge.1));
    let missing = missing(entry, vocabulary, unknown(entry, vocabulary), entry.fuse_unk);
    let whole = if entry.ignore_merges { Whole::Taken } else { Whole::Merged };
    Ok(Bpe::new(Ranks::Merges(Merges::new(vocabulary, pairs)), missing, whole))
}

fn unigram(entry: &ModelEntry<'_>, vocabulary: &Vocabulary) -> Unigram {
    let scores = match &entry.vocab {
        VocabEntry::Scored(list) => list.iter().map(|(_, score)| *score).collect(),
        VocabEntry::Numbered(_) => Vec::new(),
    };
    Unigram::new(vocabulary, scores, missing(entry, vocabulary, entry.unk_id, true))
}

fn wordpiece(entry: &ModelEntry<'_>, vocabulary: &Vocabulary) -> Result<WordPiece, TextError> {
    let name = entry.unk_token.as_deref().unwrap_or("[UNK]");
    let later = entry.continuing_subword_prefix.clone().unwrap_or_else(|| "##".to_owned());
    if later.len() > MAX_PREFIX_BYTES {
        return Err(TextError::Unsupported {
            part: "WordPiece prefix",
            name: format!("{} bytes long", later.len()),
        });
    }
    let absent = || TextError::Inconsistent(format!("its unknown token {name:?} is not in the vocabulary"));
    Ok(WordPiece {
        first: String::new(),
        later,
        unknown: vocabulary.id(name).ok_or_else(absent)?,
        max_chars: entry.max_input_chars_per_word.unwrap_or(MAX_WORD_CHARS).min(MAX_WORD_CHARS),
    })
}
