//! SGLang: `/generate` with `input_ids`.
//!
//! ```text
//! ask     input_ids, sampling_params: {max_new_tokens, stop_token_ids, ..}, stream, return_logprob
//! event   output_ids, meta_info: {completion_tokens, cached_tokens, finish_reason: {type, matched}, output_token_logprobs}
//! ```
//! Events repeat all ids so far, unless the server was started with `--incremental-streaming-output`: they do when there are as many
//! as `completion_tokens` says. The end token is the last id. `ignore_eos` switches off `stop_token_ids` as well: then ends are looked
//! for here, and the connection is closed at one.

use std::collections::{BTreeMap, VecDeque};

use ropeway_executor::Sampled;
use ropeway_grammar::GrammarSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ChunkReader, Fault, Form, Known, Reading, Worded, best, biases, check_params};
use crate::error::UpstreamError;
use crate::settings::Kind;
use crate::upstream::ask::{Ending, TokenAsk, TokenEvent, bare};
use crate::upstream::sse::DONE;

#[derive(Serialize)]
struct Body<'a> {
    input_ids: &'a [u32],
    sampling_params: Sampling<'a>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    return_logprob: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprob_start_len: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs_num: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_salt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
}

#[derive(Serialize)]
struct Sampling<'a> {
    max_new_tokens: usize,
    min_new_tokens: usize,
    stop_token_ids: &'a [u32],
    ignore_eos: bool,
    skip_special_tokens: bool,
    no_stop_trim: bool,
    temperature: f32,
    top_p: f32,
    /// -1 keeps all.
    top_k: i64,
    min_p: f32,
    repetition_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "sampling_seed")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    logit_bias: BTreeMap<u32, f32>,
    #[serde(flatten)]
    structured: BTreeMap<&'static str, String>,
}

/// As good as never.
const LEAST_BIAS: f32 = -1e9;

/// Seeds are hashed as numbers of 63 bits there.
const SEED_BITS: u64 = u64::MAX >> 1;

pub(super) fn word(ask: &TokenAsk<'_>) -> Result<Worded, UpstreamError> {
    check_params(Kind::Sglang, ask.params, Known::default())?;
    let wants_logprobs = ask.params.logprobs.is_some() || ask.prompt_logprobs.is_some();
    let body = Body {
        input_ids: ask.prompt,
        sampling_params: sampling(ask),
        stream: true,
        return_logprob: wants_logprobs.then_some(true),
        logprob_start_len: ask.prompt_logprobs.map(|_| 0),
        top_logprobs_num: wants_logprobs.then(|| alternatives(ask)),
        cache_salt: ask.cache_salt.filter(|salt| !salt.is_empty()),
        session_id: ask.session,
    };
    let reader = Reader::new(ask);
    Ok(Worded { path: "/generate", body: super::json(&body), answer: Form::Stream(Box::new(reader)) })
}

/// One number holds for the prompt and the answer.
fn alternatives(ask: &TokenAsk<'_>) -> u32 {
    ask.params.logprobs.max(ask.prompt_logprobs).unwrap_or(0)
}

fn sampling<'a>(ask: &TokenAsk<'a>) -> Sampling<'a> {
    let params = ask.params;
    Sampling {
        max_new_tokens: ask.max_tokens,
        min_new_tokens: ask.min_tokens,
        stop_token_ids: ask.ends,
        ignore_eos: ask.ignore_eos,
        skip_special_tokens: false,
        no_stop_trim: true,
        temperature: params.temperature,
        top_p: params.top_p,
        top_k: if params.top_k == 0 { -1 } else { i64::from(params.top_k) },
        min_p: params.min_p,
        repetition_penalty: params.repetition_penalty,
        presence_penalty: params.presence_penalty,
        frequency_penalty: params.frequency_penalty,
        seed: ask.is_seeded.then_some(params.seed.0 & SEED_BITS),
        logit_bias: biases(params, LEAST_BIAS),
        structured: ask.grammar.map(structured).into_iter().collect(),
    }
}

fn structured(grammar: &GrammarSpec) -> (&'static str, String) {
    match grammar {
        GrammarSpec::JsonSchema { schema, .. } => ("json_schema", schema.to_string()),
        GrammarSpec::JsonObject => ("json_schema", r#"{"type": "object"}"#.into()),
        GrammarSpec::Regex(text) => ("regex", text.clone()),
        GrammarSpec::Choice(texts) => ("regex", any_of(texts)),
        GrammarSpec::Grammar(text) => ("ebnf", text.clone()),
    }
}

/// An expression that matches exactly these texts.
fn any_of(texts: &[String]) -> String {
    let escaped = texts.iter().map(|text| {
        let mut one = String::with_capacity(text.len());
        for character in text.chars() {
            if r"\.+*?()|[]{}^$/-".contains(character) {
                one.push('\\');
            }
            one.push(character);
        }
        one
    });
    format!("({})", escaped.collect::<Vec<_>>().join("|"))
}

/// One event; what is not named here is skipped unread.
#[derive(Deserialize)]
struct Chunk {
    output_ids: Option<Vec<u32>>,
    meta_info: Option<Meta>,
    error: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Meta {
    completion_tokens: Option<usize>,
    cached_tokens: Option<usize>,
    finish_reason: Option<Finish>,
    output_token_logprobs: Option<Vec<Entry>>,
    output_top_logprobs: Option<Vec<Option<Vec<Entry>>>>,
    input_token_logprobs: Option<Vec<Entry>>,
    input_top_logprobs: Option<Vec<Option<Vec<Entry>>>>,
}

/// A log-probability, its token, and a text that is not asked for.
#[derive(Deserialize)]
struct Entry(Option<f32>, u32, serde::de::IgnoredAny);

#[derive(Deserialize)]
struct Finish {
    r#type: String,
    matched: Option<Value>,
    message: Option<Value>,
    status_code: Option<u16>,
}

/// Reads the events of one sequence.
struct Reader {
    ends: Vec<u32>,
    /// Whether the server goes on after an end.
    watches_ends: bool,
    logprobs: Option<u32>,
    prompt_logprobs: Option<u32>,
    max_tokens: usize,
    /// Ids seen.
    seen: usize,
    /// Whether the prompt's log-probabilities were handed out.
    is_scored: bool,
    /// Whether it was closed at an end that the server went on after.
    is_cut: bool,
}

impl Reader {
    fn new(ask: &TokenAsk<'_>) -> Self {
        Self {
            ends: ask.ends.to_vec(),
            watches_ends: ask.ignore_eos && !ask.ends.is_empty(),
            logprobs: ask.params.logprobs,
            prompt_logprobs: ask.prompt_logprobs,
            max_tokens: ask.max_tokens,
            seen: 0,
            is_scored: ask.prompt_logprobs.is_none(),
            is_cut: false,
        }
    }

    /// The ids that are new, with their log-probabilities.
    fn tokens(&mut self, ids: Vec<u32>, meta: &mut Meta) -> Result<Vec<Sampled>, Fault> {
        let repeats = meta.completion_tokens == Some(ids.len()) && ids.len() >= self.seen;
        let skip = if repeats { self.seen } else { 0 };
        let new = ids.len() - skip;
        self.seen += new;
        let Some(most) = self.logprobs else { return Ok(ids.into_iter().skip(skip).map(bare).collect()) };
        let mut entries = last(meta.output_token_logprobs.take(), new)?;
        let mut tops = last(meta.output_top_logprobs.take(), if most == 0 { 0 } else { new })?;
        let described = ids.into_iter().skip(skip).map(|token| {
            let logprob = entries.next().and_then(|Entry(logprob, ..)| logprob).unwrap_or(0.0);
            Sampled { token, logprob, top: top(tops.next().flatten(), most) }
        });
        Ok(described.collect())
    }

    fn scored(&mut self, meta: &mut Meta) -> Option<TokenEvent> {
        let most = self.prompt_logprobs.filter(|_| !self.is_scored)?;
        let entries = meta.input_token_logprobs.take()?;
        let mut tops = meta.input_top_logprobs.take().unwrap_or_default().into_iter();
        self.is_scored = true;
        // The first token has nothing before it.
        let described = entries.into_iter().map(|Entry(logprob, token, _)| Sampled {
            token,
            logprob: logprob.unwrap_or(0.0),
            top: top(tops.next().flatten(), most),
        });
        Some(TokenEvent::Scored(described.skip(1).collect()))
    }
}

/// The last so many of a list, which holds those of the event or all so far.
fn last<T>(all: Option<Vec<T>>, count: usize) -> Result<impl Iterator<Item = T>, Fault> {
    let all = all.unwrap_or_default();
    let missing = || Fault::Foreign(Kind::Sglang, "there are fewer log-probabilities than tokens".into());
    let skip = all.len().checked_sub(count).ok_or_else(missing)?;
    Ok(all.into_iter().skip(skip))
}

fn top(entries: Option<Vec<Entry>>, most: u32) -> Vec<(u32, f32)> {
    let known = |Entry(logprob, token, _)| Some((token, logprob?));
    best(entries.unwrap_or_default().into_iter().filter_map(known).collect(), most)
}

impl Finish {
    fn ending(self, ends: &[u32]) -> Result<Ending, Fault> {
        match self.r#type.as_str() {
            "length" => Ok(Ending::Length),
            "stop" => {
                let matched = self.matched.and_then(|matched| matched.as_u64());
                Ok(Ending::stopped(matched.and_then(|token| u32::try_from(token).ok()), ends))
            }
            _ => {
                let message = self.message.unwrap_or_else(|| self.r#type.into());
                Err(Fault::Reported(serde_json::json!({ "message": message, "code": self.status_code })))
            }
        }
    }
}

impl ChunkReader for Reader {
    fn read(&mut self, data: &[u8], events: &mut VecDeque<TokenEvent>) -> Result<Reading, Fault> {
        let foreign = |why: String| Fault::Foreign(Kind::Sglang, why);
        if data == DONE {
            return Err(foreign("it said [DONE] before an end".into()));
        }
        let chunk: Chunk = serde_json::from_slice(data).map_err(|error| foreign(error.to_string()))?;
        if chunk.error.is_some() {
            return Err(Fault::Reported(serde_json::from_slice(data).unwrap_or_default()));
        }
        let mut meta = chunk.meta_info.ok_or_else(|| foreign("an event has no meta_info".into()))?;
        let ending = meta.finish_reason.take().map(|finish| finish.ending(&self.ends)).transpose()?;
        events.extend(self.scored(&mut meta));
        let mut tokens = self.tokens(chunk.output_ids.unwrap_or_default(), &mut meta)?;
        let ending = self.cut_at_end(&mut tokens).or(ending);
        if let Some(Ending::End(end)) = ending
            && tokens.last().is_some_and(|last| last.token == end)
        {
            tokens.pop();
        }
        if self.max_tokens > 0 && !tokens.is_empty() {
            events.push_back(TokenEvent::Tokens(tokens));
        }
        let Some(ending) = ending else { return Ok(Reading::More) };
        events.push_back(TokenEvent::Finished { ending, cached_tokens: meta.cached_tokens });
        Ok(Reading::Over)
    }

    fn finished(&mut self) -> Option<TokenEvent> {
        None
    }

    fn ends_by_itself(&self) -> bool {
        !self.is_cut
    }
}

impl Reader {
    /// Where the server goes on after an end: drops everything after the first one.
    fn cut_at_end(&mut self, tokens: &mut Vec<Sampled>) -> Option<Ending> {
        let end = tokens
            .iter()
            .position(|sampled| self.ends.contains(&sampled.token))
            .filter(|_| self.watches_ends)?;
        tokens.truncate(end + 1);
        self.is_cut = true;
        Some(Ending::End(tokens[end].token))
    }
}
