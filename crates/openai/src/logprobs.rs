//! Log-probabilities in the two shapes OpenAI has for them.

use ropeway_executor::Sampled;
use ropeway_text::{SpecialTokens, Tokenizer};
use serde_json::{Map, Value, json};

/// A log-probability as JSON: minus infinity has no number there.
fn finite(logprob: f32) -> f32 {
    logprob.max(-9999.0)
}

/// How tokens are named beside their log-probabilities.
#[derive(Clone, Copy)]
pub struct TokenNames<'a> {
    /// For their texts.
    pub tokenizer: &'a Tokenizer,
    /// Whether they are named `token_id:N`, as vLLM does it, instead of by their texts, which two tokens may share.
    pub by_id: bool,
}

impl<'a> From<&'a Tokenizer> for TokenNames<'a> {
    fn from(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, by_id: false }
    }
}

impl TokenNames<'_> {
    fn name(&self, token: u32) -> String {
        if self.by_id { format!("token_id:{token}") } else { self.text(token) }
    }

    fn text(&self, token: u32) -> String {
        self.tokenizer.decode(&[token], SpecialTokens::Keep)
    }
}

fn entry(names: TokenNames<'_>, token: u32, logprob: f32) -> Value {
    json!({
        "token": names.name(token),
        "logprob": finite(logprob),
        "bytes": names.tokenizer.token_bytes(token),
    })
}

/// Chat's shape: a list of tokens, each with its alternatives.
pub fn chat<'a>(names: impl Into<TokenNames<'a>>, tokens: &[Sampled]) -> Value {
    let names = names.into();
    let described = |sampled: &Sampled| {
        let mut one = entry(names, sampled.token, sampled.logprob);
        one["top_logprobs"] =
            sampled.top.iter().map(|(token, logprob)| entry(names, *token, *logprob)).collect();
        one
    };
    json!({ "content": tokens.iter().map(described).collect::<Vec<_>>() })
}

/// Completions' shape: parallel lists. `first` is a token that nothing came before, and so has no probability. Offsets count
/// characters from `offset` on, which is moved to the end.
pub fn completions<'a>(
    names: impl Into<TokenNames<'a>>,
    first: Option<u32>,
    tokens: impl IntoIterator<Item = &'a Sampled>,
    offset: &mut usize,
) -> Value {
    let names = names.into();
    let (mut texts, mut logprobs, mut tops, mut offsets) = (vec![], vec![], vec![], vec![]);
    let rest = tokens.into_iter().map(|sampled| (sampled.token, Some(sampled)));
    for (token, sampled) in first.map(|token| (token, None)).into_iter().chain(rest) {
        offsets.push(*offset);
        *offset += names.text(token).chars().count();
        texts.push(names.name(token));
        logprobs.push(sampled.map(|sampled| finite(sampled.logprob)));
        tops.push(sampled.map(|sampled| {
            let top = sampled.top.iter();
            top.map(|(token, logprob)| (names.name(*token), finite(*logprob).into())).collect::<Map<_, _>>()
        }));
    }
    json!({ "tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets })
}

/// vLLM's shape for a prompt: for each token, by id, itself and its alternatives; nothing for the first.
pub fn prompt(tokenizer: &Tokenizer, scored: &[Sampled]) -> Value {
    let names = TokenNames::from(tokenizer);
    let described = |sampled: &Sampled| {
        let place = |token: u32| sampled.top.iter().position(|(other, _)| *other == token);
        let all = std::iter::once((sampled.token, sampled.logprob)).chain(sampled.top.iter().copied());
        let entry = |(token, logprob): (u32, f32)| {
            let rank = place(token).map(|place| place + 1);
            let entry =
                json!({ "logprob": finite(logprob), "rank": rank, "decoded_token": names.text(token) });
            (token.to_string(), entry)
        };
        Value::Object(all.map(entry).collect())
    };
    std::iter::once(Value::Null).chain(scored.iter().map(described)).collect()
}
