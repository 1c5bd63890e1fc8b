//! Log-probabilities in the two shapes OpenAI has for them.

use ropeway_executor::Sampled;
use ropeway_text::{SpecialTokens, Tokenizer};
use serde_json::{Map, Value, json};

/// A log-probability as JSON: minus infinity has no number there.
fn finite(logprob: f32) -> f32 {
    logprob.max(-9999.0)
}

fn text(tokenizer: &Tokenizer, token: u32) -> String {
    tokenizer.decode(&[token], SpecialTokens::Keep)
}

fn entry(tokenizer: &Tokenizer, token: u32, logprob: f32) -> Value {
    json!({
        "token": text(tokenizer, token),
        "logprob": finite(logprob),
        "bytes": tokenizer.token_bytes(token),
    })
}

/// Chat's shape: a list of tokens, each with its alternatives.
pub fn chat(tokenizer: &Tokenizer, tokens: &[Sampled]) -> Value {
    let described = |sampled: &Sampled| {
        let mut one = entry(tokenizer, sampled.token, sampled.logprob);
        one["top_logprobs"] =
            sampled.top.iter().map(|(token, logprob)| entry(tokenizer, *token, *logprob)).collect();
        one
    };
    json!({ "content": tokens.iter().map(described).collect::<Vec<_>>() })
}

/// Completions' shape: parallel lists. `first` is a token that nothing came before, and so has no probability. Offsets count
/// characters from `offset` on, which is moved to the end.
pub fn completions<'a>(
    tokenizer: &Tokenizer,
    first: Option<u32>,
    tokens: impl IntoIterator<Item = &'a Sampled>,
    offset: &mut usize,
) -> Value {
    let (mut texts, mut logprobs, mut tops, mut offsets) = (vec![], vec![], vec![], vec![]);
    let rest = tokens.into_iter().map(|sampled| (sampled.token, Some(sampled)));
    for (token, sampled) in first.map(|token| (token, None)).into_iter().chain(rest) {
        let token = text(tokenizer, token);
        offsets.push(*offset);
        *offset += token.chars().count();
        texts.push(token);
        logprobs.push(sampled.map(|sampled| finite(sampled.logprob)));
        tops.push(sampled.map(|sampled| {
            let top = sampled.top.iter();
            top.map(|(token, logprob)| (text(tokenizer, *token), finite(*logprob).into()))
                .collect::<Map<_, _>>()
        }));
    }
    json!({ "tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets })
}
