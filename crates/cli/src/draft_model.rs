//! `--draft-model`: a smaller model that drafts for the one that is served.

use std::str::FromStr;

use ropeway_text::Tokenizer;
use ropeway_weights::Checkpoint;

use crate::failure::Failure;

/// What was asked for: the draft model of one model, or of every model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftModelArg {
    /// The model that it drafts for; `None` means any.
    target: Option<String>,
    /// A name from `ropeway search`, or a path.
    name: String,
}

impl FromStr for DraftModelArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (target, name) = match text.split_once('=') {
            Some((target, name)) => (Some(target.trim()), name.trim()),
            None => (None, text.trim()),
        };
        if name.is_empty() || target.is_some_and(str::is_empty) {
            return Err("give the name of a model, or MODEL=NAME with the model that it drafts for".into());
        }
        Ok(Self { target: target.map(str::to_owned), name: name.to_owned() })
    }
}

/// The draft model for `target`: the one that was given for it by name, or else the one for any model.
pub fn draft_model_for<'a>(asked: &'a [DraftModelArg], target: &str) -> Option<&'a str> {
    let named = asked.iter().find(|one| one.target.as_deref() == Some(target));
    named.or_else(|| asked.iter().find(|one| one.target.is_none())).map(|one| one.name.as_str())
}

/// Makes sure that token ids mean the same to both models.
pub fn check_tokenizers(target: &Checkpoint, draft: &Checkpoint) -> Result<(), Failure> {
    let (target, draft) = (Tokenizer::from_checkpoint(target)?, Tokenizer::from_checkpoint(draft)?);
    match difference(&target, &draft) {
        None => Ok(()),
        Some(difference) => Err(Failure::new(
            format!("the draft model has another tokenizer: {difference}"),
            "choose a smaller model of the same family with --draft-model",
        )),
    }
}

/// What differs between two tokenizers.
fn difference(target: &Tokenizer, draft: &Tokenizer) -> Option<String> {
    let (size, other) = (target.vocab_size(), draft.vocab_size());
    if size != other {
        return Some(format!("it has {other} tokens instead of {size}"));
    }
    let text =
        |tokenizer: &Tokenizer, token| String::from_utf8_lossy(&tokenizer.token_bytes(token)).into_owned();
    let differs = |token: &u32| target.token_bytes(*token) != draft.token_bytes(*token);
    if let Some(token) = (0..size as u32).find(differs) {
        return Some(format!(
            "token {token} is {:?} instead of {:?}",
            text(draft, token),
            text(target, token)
        ));
    }
    let (ends, others) = (target.eos_tokens(), draft.eos_tokens());
    (ends != others).then(|| format!("its answers end with tokens {others:?} instead of {ends:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_model_is_for_one_model_or_for_all() {
        let asked: Vec<DraftModelArg> =
            ["small", "big = tiny"].map(|text| text.parse().expect("a name")).into();
        assert_eq!(draft_model_for(&asked, "big"), Some("tiny"));
        assert_eq!(draft_model_for(&asked, "other"), Some("small"));
        assert_eq!(draft_model_for(&asked[1..], "other"), None);
        for text in ["", "=tiny", "big="] {
            assert!(text.parse::<DraftModelArg>().is_err(), "{text}");
        }
    }
}
