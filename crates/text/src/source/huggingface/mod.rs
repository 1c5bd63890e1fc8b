//! Tokenizers from a folder with tokenizer.json, as Hugging Face's `tokenizers` library writes it.
//!
//! | file | what is taken from it |
//! |---|---|
//! | tokenizer.json | everything that turns text into ids |
//! | tokenizer_config.json | the names of BOS and EOS; whether they are added if tokenizer.json doesn't say |
//! | generation_config.json, config.json | which tokens end a generation |

mod decoder;
mod file;
mod framing;
mod model;
mod normalizer;
mod pretokenizer;

use super::end_tokens::end_tokens;
use super::json_file::{read_json, read_text};
use crate::added::{AddedToken, AddedTokens, Fit};
use crate::error::TextError;
use crate::normalizer::Normalizer;
use crate::pretokenizer::PreTokenizer;
use crate::tokenizer::{Framing, NamedTokens, Parts};
use crate::vocabulary::Vocabulary;
use file::{AddedEntry, TokenizerFile};
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::path::Path;

/// What `tokenizer_config.json` says, as far as it matters here.
#[derive(Default, Deserialize)]
pub(crate) struct TokenizerConfig {
    pub(crate) bos_token: Option<Value>,
    pub(crate) eos_token: Option<Value>,
    pub(crate) chat_template: Option<Value>,
    add_bos_token: Option<bool>,
    add_eos_token: Option<bool>,
}

/// The text of a token that is given as a string or as an object with `content`.
pub(crate) fn token_field(field: Option<&Value>) -> Option<&str> {
    let field = field?;
    field.as_str().or_else(|| field.get("content")?.as_str())
}

pub(super) fn parts(folder: &Path) -> Result<Parts, TextError> {
    let path = folder.join("tokenizer.json");
    let text = read_text(&path)?.ok_or_else(|| TextError::NoTokenizer(folder.to_owned()))?;
    let bad = |source| TextError::BadJson { path: path.clone(), source };
    let mut file: TokenizerFile<'_> = serde_json::from_str(&text).map_err(bad)?;
    let normalizer = file.normalizer.take().map(normalizer::build).transpose()?;
    let steps = file.pre_tokenizer.take().map(pretokenizer::build).transpose()?;
    let config: TokenizerConfig = read_json(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
    let vocabulary = file.vocabulary()?;
    let (added, added_normalized) = added_tokens(&file.added_tokens, normalizer.as_ref())?;
    let decoded = decoder::read(file.decoder.as_ref(), file.model.kind());
    Ok(Parts {
        added,
        added_normalized,
        normalizer,
        pre_tokenizer: PreTokenizer { steps: steps.unwrap_or_default() },
        model: model::build(&file.model, &vocabulary)?,
        spelling: decoded.spelling,
        adds_space: decoded.adds_space,
        framing: framing(file.post_processor.as_ref(), &config, &vocabulary),
        named: named(folder, &config, &vocabulary)?,
        vocabulary,
    })
}

/// Those that are matched in the text as it is given, and those that are matched after normalising.
fn added_tokens(
    entries: &[AddedEntry],
    normalizer: Option<&Normalizer>,
) -> Result<(AddedTokens, AddedTokens), TextError> {
    let (mut given, mut normalized) = (Vec::new(), Vec::new());
    for entry in entries {
        let mut token = AddedToken {
            id: entry.id,
            text: entry.content.clone(),
            special: entry.special,
            fit: Fit { single_word: entry.single_word, takes_left: entry.lstrip, takes_right: entry.rstrip },
        };
        match normalizer {
            Some(normalizer) if entry.normalized => {
                token.text = normalizer.apply(Cow::Borrowed(&entry.content))?.into_owned();
                normalized.push(token);
            }
            _ => given.push(token),
        }
    }
    Ok((AddedTokens::new(given)?, AddedTokens::new(normalized)?))
}

fn framing(post_processor: Option<&Value>, config: &TokenizerConfig, vocabulary: &Vocabulary) -> Framing {
    if let Some(framing) = post_processor.and_then(framing::read) {
        return framing;
    }
    let token = |wanted: Option<bool>, field: &Option<Value>| {
        let text = token_field(field.as_ref()).filter(|_| wanted == Some(true));
        text.and_then(|text| vocabulary.id(text)).into_iter().collect()
    };
    Framing {
        before: token(config.add_bos_token, &config.bos_token),
        after: token(config.add_eos_token, &config.eos_token),
        pair: None,
    }
}

fn named(folder: &Path, config: &TokenizerConfig, vocabulary: &Vocabulary) -> Result<NamedTokens, TextError> {
    let id = |field: &Option<Value>| token_field(field.as_ref()).and_then(|text| vocabulary.id(text));
    let mut ends: Vec<u32> = id(&config.eos_token).into_iter().collect();
    for name in ["generation_config.json", "config.json"] {
        let file: Option<Value> = read_json(&folder.join(name))?;
        ends.extend(file.iter().filter_map(|file| file.get("eos_token_id")).flat_map(ids));
    }
    Ok(NamedTokens { bos: id(&config.bos_token), ends: end_tokens(vocabulary, ends) })
}

/// A number or a list of numbers.
fn ids(value: &Value) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value.as_array() {
        Some(list) => list.iter().filter_map(id).collect(),
        None => id(value).into_iter().collect(),
    }
}
