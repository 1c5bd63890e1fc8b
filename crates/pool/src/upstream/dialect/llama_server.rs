//! llama.cpp's server: `/completion` with the prompt as ids.
//!
//! ```text
//! ask     prompt: [ids], n_predict, return_tokens, cache_prompt, n_probs
//! event   tokens: [id], content, tokens_predicted, completion_probabilities: [{id, logprob, top_logprobs}]
//! last    stop: true, stop_type: eos | limit, timings.cache_n                                 no [DONE] follows
//! ```
//! It knows the model's own end tokens and no others: others are looked for here, and the connection is closed at one. `ignore_eos`
//! forbids the model's own ones altogether.
//!
//! A token that ends in the middle of a character is not streamed: the next event holds the character's text and its last token only. The
//! number of tokens so far shows the gap, and the text is spelled in tokens again.
//!
//! An end token of the model's own comes without text, and the last event follows it. A token without text is therefore held until the next
//! event says what it was.
//!
//! Penalties of presence and frequency count the prompt's tokens too, which is this server's way.

use std::borrow::Cow;
use std::collections::VecDeque;

use ropeway_executor::Sampled;
use ropeway_grammar::GrammarSpec;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{ChunkReader, Fault, Form, Known, Reading, Worded, best, check_params, unsupported};
use crate::error::UpstreamError;
use crate::settings::Kind;
use crate::upstream::ask::{Ending, Spelling, TokenAsk, TokenEvent, bare};

#[derive(Serialize)]
#[allow(clippy::struct_excessive_bools, reason = "the fields are the server's")]
struct Body<'a> {
    model: &'a str,
    prompt: &'a [u32],
    n_predict: usize,
    stream: bool,
    return_tokens: bool,
    cache_prompt: bool,
    temperature: f32,
    top_p: f32,
    top_k: u32,
    min_p: f32,
    typical_p: f32,
    repeat_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    repeat_last_n: usize,
    ignore_eos: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logit_bias: Vec<(u32, Bias)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n_probs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    json_schema: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grammar: Option<String>,
}

/// What is added to a logit; `false` bans the token.
#[derive(Serialize)]
#[serde(untagged)]
enum Bias {
    Added(f32),
    Banned(bool),
}

impl Bias {
    fn of(bias: f32) -> Self {
        if bias == f32::NEG_INFINITY { Self::Banned(false) } else { Self::Added(bias) }
    }
}

pub(super) fn word(ask: &TokenAsk<'_>) -> Result<Worded, UpstreamError> {
    let kind = Kind::LlamaServer;
    let params = ask.params;
    check_params(kind, params, Known { typical_p: true, penalty_window: true, allowed: false })?;
    if ask.min_tokens > 0 {
        return Err(unsupported(kind, "min_tokens"));
    }
    if ask.prompt_logprobs.is_some() {
        return Err(unsupported(kind, "log-probabilities of the prompt"));
    }
    let (json_schema, grammar) = structured(ask.grammar)?;
    let body = Body {
        model: ask.model,
        prompt: ask.prompt,
        n_predict: ask.max_tokens,
        stream: true,
        return_tokens: true,
        cache_prompt: true,
        temperature: params.temperature,
        top_p: params.top_p,
        top_k: params.top_k,
        min_p: params.min_p,
        typical_p: params.typical_p,
        repeat_penalty: params.repetition_penalty,
        presence_penalty: params.presence_penalty,
        frequency_penalty: params.frequency_penalty,
        repeat_last_n: window(ask),
        ignore_eos: ask.ignore_eos,
        seed: ask.is_seeded.then_some(params.seed.0 as u32),
        logit_bias: params.logit_bias.iter().map(|(token, bias)| (*token, Bias::of(*bias))).collect(),
        // 0 would switch them off altogether.
        n_probs: params.logprobs.map(|most| most.max(1)),
        json_schema,
        grammar,
    };
    let reader = Reader::new(ask);
    Ok(Worded { path: "/completion", body: super::json(&body), answer: Form::Stream(Box::new(reader)) })
}

/// Tokens that penalties look at. Everything is a number too: the server sets memory aside for as many as it is told.
fn window(ask: &TokenAsk<'_>) -> usize {
    let all = ask.prompt.len() + ask.max_tokens;
    let window = ask.params.penalty_window.map_or(all, |window| all.min(window as usize));
    if ask.params.uses_history() { window } else { 0 }
}

/// A schema, or a grammar in GBNF.
fn structured(grammar: Option<&GrammarSpec>) -> Result<(Option<Value>, Option<String>), UpstreamError> {
    Ok(match grammar {
        None => (None, None),
        Some(GrammarSpec::JsonSchema { schema, .. }) => (Some(schema.clone()), None),
        Some(GrammarSpec::JsonObject) => (Some(json!({ "type": "object" })), None),
        Some(GrammarSpec::Choice(texts)) => (None, Some(any_of(texts))),
        Some(GrammarSpec::Grammar(text)) if text.contains("::=") => (None, Some(text.clone())),
        Some(GrammarSpec::Grammar(_)) => {
            return Err(unsupported(Kind::LlamaServer, "a grammar that is not GBNF"));
        }
        Some(GrammarSpec::Regex(_)) => return Err(unsupported(Kind::LlamaServer, "a regular expression")),
    })
}

/// A grammar for exactly these texts.
fn any_of(texts: &[String]) -> String {
    let quoted = texts.iter().map(|text| {
        let escaped =
            text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n").replace('\r', r"\r");
        format!("\"{escaped}\"")
    });
    format!("root ::= {}", quoted.collect::<Vec<_>>().join(" | "))
}

/// One event; what is not named here is skipped unread.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(default)]
    tokens: Vec<u32>,
    #[serde(borrow, default)]
    content: Cow<'a, str>,
    tokens_predicted: Option<usize>,
    #[serde(default)]
    stop: bool,
    #[serde(borrow)]
    stop_type: Option<Cow<'a, str>>,
    timings: Option<Timings>,
    completion_probabilities: Option<Vec<Probability>>,
    error: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Timings {
    cache_n: Option<usize>,
}

#[derive(Deserialize)]
struct Probability {
    logprob: f32,
    #[serde(default)]
    top_logprobs: Vec<Alternative>,
}

#[derive(Deserialize)]
struct Alternative {
    id: u32,
    logprob: f32,
}

/// Reads the events of one sequence.
struct Reader {
    ends: Vec<u32>,
    logprobs: Option<u32>,
    spelling: Option<Spelling>,
    /// Tokens seen or spelled.
    seen: usize,
    /// A token without text: an end of the model's own, or one that shows nothing.
    held: Option<Sampled>,
    /// The end token that came, if one did.
    end: Option<u32>,
    /// Whether it was closed at an end that the server went on after.
    is_cut: bool,
}

impl Reader {
    fn new(ask: &TokenAsk<'_>) -> Self {
        let (ends, logprobs) = (ask.ends.to_vec(), ask.params.logprobs);
        Self { ends, logprobs, spelling: ask.spelling.clone(), seen: 0, held: None, end: None, is_cut: false }
    }

    /// An event's tokens, those that it leaves out included.
    fn tokens(&mut self, chunk: &mut Chunk<'_>) -> Result<Vec<Sampled>, Fault> {
        let all = chunk.tokens_predicted.unwrap_or(self.seen + chunk.tokens.len());
        let missing = all.saturating_sub(self.seen + chunk.tokens.len());
        self.seen = all;
        let mut tokens = self.left_out(missing, chunk)?;
        let mut probabilities = chunk.completion_probabilities.take().unwrap_or_default().into_iter();
        for &token in &chunk.tokens {
            tokens.push(match (self.logprobs, probabilities.next()) {
                (Some(most), Some(given)) => given.of(token, most),
                (Some(_), None) => return Err(foreign("log-probabilities are missing")),
                (None, _) => bare(token),
            });
        }
        Ok(tokens)
    }

    /// Tokens of a character before its last one: the text holds all of them, and perhaps more that frame it.
    fn left_out(&self, missing: usize, chunk: &Chunk<'_>) -> Result<Vec<Sampled>, Fault> {
        let Some(last) = chunk.tokens.last().filter(|_| missing > 0) else { return Ok(Vec::new()) };
        let unknown = || {
            foreign(
                "it left out token ids in the middle of a character, and there is no tokenizer to find them",
            )
        };
        let mut spelled = self.spelling.as_ref().ok_or_else(unknown)?.spell(&chunk.content);
        if spelled.last() == Some(last) {
            spelled.pop();
        }
        let extra = spelled.len().saturating_sub(missing);
        // Nothing is known about how likely they were.
        let unscored = |token| Sampled { logprob: f32::NEG_INFINITY, ..bare(token) };
        Ok(spelled.into_iter().skip(extra).map(unscored).collect())
    }

    /// How the sequence ended, by its last event.
    fn ending(&mut self, stop_type: Option<&str>, events: &mut VecDeque<TokenEvent>) -> Ending {
        match (self.end.take(), self.held.take(), stop_type) {
            (Some(end), ..) => Ending::End(end),
            (None, Some(held), Some("eos")) => Ending::End(held.token),
            (None, held, stop_type) => {
                events.extend(held.map(|held| TokenEvent::Tokens(vec![held])));
                if stop_type == Some("limit") { Ending::Length } else { Ending::stopped(None, &self.ends) }
            }
        }
    }

    /// Takes tokens up to an end token.
    fn hand_out(&mut self, mut tokens: Vec<Sampled>, events: &mut VecDeque<TokenEvent>) {
        if let Some(end) = tokens.iter().position(|sampled| self.ends.contains(&sampled.token)) {
            self.end = Some(tokens[end].token);
            tokens.truncate(end);
        }
        if !tokens.is_empty() {
            events.push_back(TokenEvent::Tokens(tokens));
        }
    }
}

impl Probability {
    fn of(self, token: u32, most: u32) -> Sampled {
        let top = self.top_logprobs.into_iter().map(|one| (one.id, one.logprob)).collect();
        Sampled { token, logprob: self.logprob, top: best(top, most) }
    }
}

fn foreign(why: impl Into<String>) -> Fault {
    Fault::Foreign(Kind::LlamaServer, why.into())
}

impl ChunkReader for Reader {
    fn read(&mut self, data: &[u8], events: &mut VecDeque<TokenEvent>) -> Result<Reading, Fault> {
        let mut chunk: Chunk<'_> =
            serde_json::from_slice(data).map_err(|error| foreign(error.to_string()))?;
        if chunk.error.is_some() {
            return Err(Fault::Reported(serde_json::from_slice(data).unwrap_or_default()));
        }
        if chunk.stop {
            let ending = self.ending(chunk.stop_type.as_deref(), events);
            let cached_tokens = chunk.timings.and_then(|timings| timings.cache_n);
            events.push_back(TokenEvent::Finished { ending, cached_tokens });
            return Ok(Reading::Over);
        }
        if let Some(end) = self.end {
            // It was no end for the server, which goes on.
            self.is_cut = true;
            events.push_back(TokenEvent::Finished { ending: Ending::End(end), cached_tokens: None });
            return Ok(Reading::Over);
        }
        let mut tokens: Vec<_> = self.held.take().into_iter().collect();
        tokens.append(&mut self.tokens(&mut chunk)?);
        let is_named = tokens.last().is_some_and(|last| self.ends.contains(&last.token));
        if chunk.content.is_empty() && !is_named {
            self.held = tokens.pop();
        }
        self.hand_out(tokens, events);
        Ok(Reading::More)
    }

    fn finished(&mut self) -> Option<TokenEvent> {
        self.end.take().map(|end| TokenEvent::Finished { ending: Ending::End(end), cached_tokens: None })
    }

    fn ends_by_itself(&self) -> bool {
        !self.is_cut
    }
}
