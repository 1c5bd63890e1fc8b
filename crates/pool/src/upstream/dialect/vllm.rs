//! vLLM and Ropeway: `/v1/completions` with token ids in and out.
//!
//! ```text
//! ask     prompt: [ids], stream, return_token_ids, ignore_eos, stop_token_ids: ends
//! chunk   choices[0]: token_ids: [new ids], logprobs, finish_reason, stop_reason: the end token     the end token is the last id
//! last    usage.prompt_tokens_details.cached_tokens, then [DONE]
//! ```
//! The model's own end tokens are ignored and `ends` are given instead, so that exactly these end a sequence, and the end of a grammar. vLLM streams no
//! log-probabilities of prompts: these are asked for in one piece. A class is told to Ropeway alone: vLLM refuses requests with a
//! priority unless it was started for it, and the order is decided here anyway.

mod chunk;
mod whole;

use std::collections::BTreeMap;

use ropeway_grammar::GrammarSpec;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Form, Known, Speech, Worded, biases, check_params, unsupported};
use crate::error::UpstreamError;
use crate::settings::Kind;
use crate::upstream::ask::TokenAsk;
use crate::upstream::version::Version;

/// The first vLLM that gives token ids.
pub(in crate::upstream) const GIVES_TOKENS: Version = Version([0, 10, 2]);

/// The first vLLM with `structured_outputs`; those before have `guided_json` and its like.
const STRUCTURED_OUTPUTS: Version = Version([0, 11, 0]);

/// The strongest ban that both take.
const LEAST_BIAS: f32 = -100.0;

#[derive(Default, Serialize)]
#[allow(clippy::struct_excessive_bools, reason = "the fields are the server's")]
struct Body<'a> {
    model: &'a str,
    prompt: &'a [u32],
    max_tokens: usize,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    temperature: f32,
    top_p: f32,
    top_k: u32,
    min_p: f32,
    repetition_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    ignore_eos: bool,
    stop_token_ids: &'a [u32],
    min_tokens: usize,
    skip_special_tokens: bool,
    return_token_ids: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    return_tokens_as_token_ids: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    logit_bias: BTreeMap<u32, f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_token_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_salt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(flatten)]
    structured: BTreeMap<&'static str, Value>,
    #[serde(flatten)]
    ropeway: Option<RopewayFields<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// What vLLM has no word for.
#[derive(Serialize)]
struct RopewayFields<'a> {
    typical_p: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeat_last_n: Option<u32>,
    priority: &'a str,
}

pub(super) fn word(speech: Speech, ask: &TokenAsk<'_>) -> Result<Worded, UpstreamError> {
    let is_ropeway = speech.kind == Kind::Ropeway;
    let knows = Known { typical_p: is_ropeway, penalty_window: is_ropeway, allowed: true };
    check_params(speech.kind, ask.params, knows)?;
    if !is_ropeway && speech.version.is_some_and(|version| version < GIVES_TOKENS) {
        return Err(unsupported(
            speech.kind,
            "token ids, which vLLM gives from 0.10.2 on (or set kind to openai),",
        ));
    }
    let structured = ask.grammar.map(|grammar| structured(speech, grammar)).unwrap_or_default();
    // Log-probabilities of a prompt don't come in a stream.
    let streams = ask.prompt_logprobs.is_none();
    let body = Body {
        stream: streams,
        stream_options: streams.then_some(StreamOptions { include_usage: true }),
        structured,
        ropeway: is_ropeway.then(|| ropeway_fields(ask)),
        // A grammar that is complete allows the model's own end token alone, and vLLM would go on without a grammar after it.
        ignore_eos: is_ropeway || ask.grammar.is_none(),
        // A Ropeway chooses as fast with a seed, and the same at every place of a sequence: one that moves goes on as it would have.
        seed: (ask.is_seeded || is_ropeway).then(|| ask.params.seed.0.cast_signed()),
        ..plain(ask)
    };
    let answer = if streams {
        Form::Stream(Box::new(chunk::Reader::new(speech.kind, ask)))
    } else {
        Form::Whole(Box::new(whole::Reader::new(speech.kind, ask)))
    };
    Ok(Worded { path: "/v1/completions", body: super::json(&body), answer })
}

/// What is said in the same words to all of them. Every parameter is given, so that no default of the server's holds.
fn plain<'a>(ask: &TokenAsk<'a>) -> Body<'a> {
    let params = ask.params;
    Body {
        model: ask.model,
        prompt: ask.prompt,
        // There is no request for nothing: a sequence that is only scored gets a token, which is dropped.
        max_tokens: ask.max_tokens.max(1),
        min_tokens: ask.min_tokens,
        temperature: params.temperature,
        top_p: params.top_p,
        top_k: params.top_k,
        min_p: params.min_p,
        repetition_penalty: params.repetition_penalty,
        presence_penalty: params.presence_penalty,
        frequency_penalty: params.frequency_penalty,
        stop_token_ids: ask.ends,
        skip_special_tokens: false,
        return_token_ids: true,
        return_tokens_as_token_ids: params.logprobs.map(|_| true),
        logit_bias: biases(params, LEAST_BIAS),
        allowed_token_ids: params.allowed.as_deref(),
        logprobs: params.logprobs,
        prompt_logprobs: ask.prompt_logprobs,
        cache_salt: ask.cache_salt.filter(|salt| !salt.is_empty()),
        session_id: ask.session,
        ..Body::default()
    }
}

fn ropeway_fields<'a>(ask: &TokenAsk<'a>) -> RopewayFields<'a> {
    let repeat_last_n = ask.params.penalty_window.filter(|_| ask.params.uses_history());
    RopewayFields { typical_p: ask.params.typical_p, repeat_last_n, priority: ask.class.name() }
}

fn structured(speech: Speech, grammar: &GrammarSpec) -> BTreeMap<&'static str, Value> {
    let (new, old, value) = match grammar {
        GrammarSpec::JsonSchema { schema, .. } => ("json", "guided_json", schema.clone()),
        GrammarSpec::JsonObject => ("json_object", "guided_json_object", true.into()),
        GrammarSpec::Regex(text) => ("regex", "guided_regex", text.as_str().into()),
        GrammarSpec::Choice(texts) => ("choice", "guided_choice", texts.as_slice().into()),
        GrammarSpec::Grammar(text) => ("grammar", "guided_grammar", text.as_str().into()),
    };
    let is_old =
        speech.kind == Kind::Vllm && speech.version.is_some_and(|version| version < STRUCTURED_OUTPUTS);
    BTreeMap::from([if is_old { (old, value) } else { ("structured_outputs", json!({ new: value })) }])
}
