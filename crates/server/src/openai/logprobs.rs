//! Log-probabilities in the two shapes OpenAI has for them.

use ropeway_text::{SpecialTokens, Tokenizer};
use serde_json::{Map, Value, json};

use crate::generation::TokenReport;

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
pub fn chat(tokenizer: &Tokenizer, tokens: &[TokenReport]) -> Value {
    let described = |report: &TokenReport| {
        let sampled = &report.sampled;
        let mut one = entry(tokenizer, sampled.token, sampled.logprob);
        one["top_logprobs"] =
            sampled.top.iter().map(|(token, logprob)| entry(tokenizer, *token, *logprob)).collect();
        one
    };
    json!({ "content": tokens.iter().map(described).collect::<Vec<_>>() })
}

/// Completions' shape: parallel lists. `offset` is where the first token's text begins; a token without a report is
/// one that nothing came before.
pub fn completions(
    tokenizer: &Tokenizer,
    tokens: impl IntoIterator<Item = (u32, Option<TokenReport>)>,
    mut offset: usize,
) -> Value {
    let (mut texts, mut logprobs, mut tops, mut offsets) = (vec![], vec![], vec![], vec![]);
    for (token, report) in tokens {
        let token = text(tokenizer, token);
        offsets.push(offset);
        offset += token.chars().count();
        texts.push(token);
        logprobs.push(report.as_ref().map(|report| finite(report.sampled.logprob)));
        tops.push(report.map(|report| {
            let top = report.sampled.top.into_iter();
            top.map(|(token, logprob)| (text(tokenizer, token), finite(logprob).into()))
                .collect::<Map<_, _>>()
        }));
    }
    json!({ "tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets })
}
