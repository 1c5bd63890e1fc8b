//! How each kind of server is asked for tokens and how it answers. One file per way of speaking.
//!
//! What a server has no word for is an error that names the field and the server: nothing that a client asks for is left out in silence.

pub(super) mod llama_server;
pub(super) mod sglang;
pub(super) mod vllm;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use ropeway_executor::SamplingParams;
use serde::Serialize;
use serde_json::Value;

use super::ask::{TokenAsk, TokenEvent};
use super::refusal;
use super::version::Version;
use crate::error::UpstreamError;
use crate::settings::Kind;

/// An upstream's kind and version, which decide the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Speech {
    pub(super) kind: Kind,
    /// `None` if it does not say; then it is taken for a new one.
    pub(super) version: Option<Version>,
}

/// A request in an upstream's words, and who understands what comes back.
pub(super) struct Worded {
    pub(super) path: &'static str,
    pub(super) body: Vec<u8>,
    pub(super) answer: Form,
}

/// How the answer comes.
pub(super) enum Form {
    /// As events.
    Stream(Box<dyn ChunkReader>),
    /// In one piece.
    Whole(Box<dyn WholeReader>),
}

/// Understands the events of one sequence.
pub(super) trait ChunkReader: Send {
    /// Takes what stands behind a `data:`.
    fn read(&mut self, data: &[u8], events: &mut VecDeque<TokenEvent>) -> Result<Reading, Fault>;

    /// The last event, if the sequence is known to be over; asked when the connection ends.
    fn finished(&mut self) -> Option<TokenEvent>;

    /// Whether the server ends the answer by itself after what was read last.
    fn ends_by_itself(&self) -> bool {
        true
    }
}

/// Understands an answer in one piece.
pub(super) trait WholeReader: Send {
    /// All of its events.
    fn read(&mut self, body: &Bytes) -> Result<VecDeque<TokenEvent>, Fault>;
}

/// Whether more is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    More,
    /// The last event was handed out.
    Over,
}

/// What is wrong with an event.
#[derive(Debug)]
pub(super) enum Fault {
    /// It is not what this kind of server sends.
    Foreign(Kind, String),
    /// The server reports an error.
    Reported(Value),
    /// The server gave up.
    GaveUp(String),
}

impl Fault {
    /// As an error of this upstream.
    pub(super) fn of(self, upstream: &str) -> UpstreamError {
        let upstream = upstream.to_owned();
        match self {
            Self::Foreign(kind, why) => {
                UpstreamError::Foreign { upstream, expected: kind.name().into(), why }
            }
            Self::Reported(error) => refusal::in_stream(&upstream, &error),
            Self::GaveUp(why) => UpstreamError::Failed { upstream, why },
        }
    }
}

/// Puts a request into the words of the server.
pub(super) fn word(speech: Speech, ask: &TokenAsk<'_>) -> Result<Worded, UpstreamError> {
    match speech.kind {
        Kind::Vllm | Kind::Ropeway => vllm::word(speech, ask),
        Kind::Sglang => sglang::word(ask),
        Kind::LlamaServer => llama_server::word(ask),
        Kind::Ollama | Kind::Openai => Err(unsupported(speech.kind, "prompts as token ids")),
    }
}

/// The error for what a kind of server has no word for.
pub(super) fn unsupported(kind: Kind, what: &str) -> UpstreamError {
    UpstreamError::Unsupported(format!(
        "{what} can't be had from {}, which serves this model; leave it out, or ask a model that another server has",
        kind.name()
    ))
}

/// Turns down the parameters that only some servers know, if they are set.
fn check_params(kind: Kind, params: &SamplingParams, knows: Known) -> Result<(), UpstreamError> {
    #[allow(clippy::float_cmp, reason = "only exactly neutral values change nothing")]
    let is_typical = params.typical_p != 1.0;
    let asked = [
        (is_typical && !knows.typical_p, "typical_p"),
        (params.uses_history() && params.penalty_window.is_some() && !knows.penalty_window, "repeat_last_n"),
        (params.allowed.is_some() && !knows.allowed, "allowed_token_ids"),
    ];
    asked.iter().find(|(missing, _)| *missing).map_or(Ok(()), |(_, field)| Err(unsupported(kind, field)))
}

/// Which of the rarer parameters a server knows.
#[derive(Clone, Copy, Default)]
struct Known {
    typical_p: bool,
    penalty_window: bool,
    allowed: bool,
}

/// A body as bytes. All of them are made of numbers and strings, which JSON can hold.
fn json(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("a body of numbers and strings")
}

/// Biases by token, none of them below `least`: JSON has no minus infinity, which is how words are banned.
fn biases(params: &SamplingParams, least: f32) -> BTreeMap<u32, f32> {
    params.logit_bias.iter().map(|(token, bias)| (*token, bias.max(least))).collect()
}

/// Log-probabilities best first, as many as were asked for.
fn best(mut top: Vec<(u32, f32)>, most: u32) -> Vec<(u32, f32)> {
    top.sort_by(|left, right| right.1.total_cmp(&left.1));
    top.truncate(most as usize);
    top
}
