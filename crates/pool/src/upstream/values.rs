//! A streamed answer as JSON values, for servers that keep their tokens to themselves.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::refusal;
use super::silence::Silence;
use super::sse::{DONE, SseLines};
use crate::error::UpstreamError;

/// The events of an answer up to `[DONE]`, or the first error. Dropping it before closes its connection or resets its stream.
pub struct SseStream<T> {
    /// `None` after the end.
    source: Option<Source>,
    kind: PhantomData<fn() -> T>,
}

struct Source {
    lines: SseLines,
    silence: Silence,
    /// What the server is taken for.
    expected: String,
    /// Whether a choice ended: a server that then closes the stream without a word has said everything.
    has_ended: bool,
}

/// What is looked at in every event, whatever it is.
#[derive(Deserialize)]
struct Glance {
    error: Option<serde_json::Value>,
    #[serde(default)]
    choices: Vec<GlancedChoice>,
}

#[derive(Deserialize)]
struct GlancedChoice {
    finish_reason: Option<serde::de::IgnoredAny>,
}

impl<T> fmt::Debug for SseStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SseStream").finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> SseStream<T> {
    pub(super) fn new(lines: SseLines, silence: Silence, expected: String) -> Self {
        Self { source: Some(Source { lines, silence, expected, has_ended: false }), kind: PhantomData }
    }
}

impl Source {
    fn read<T: DeserializeOwned>(&mut self, data: &[u8]) -> Result<T, UpstreamError> {
        self.silence.heard();
        let foreign = |error: serde_json::Error| UpstreamError::Foreign {
            upstream: self.lines.upstream().into(),
            expected: self.expected.clone(),
            why: format!("an event of its stream can't be read ({error})"),
        };
        let glance: Glance = serde_json::from_slice(data).map_err(foreign)?;
        if let Some(error) = glance.error.filter(|error| !error.is_null()) {
            return Err(refusal::in_stream(self.lines.upstream(), &serde_json::json!({ "error": error })));
        }
        self.has_ended |= glance.choices.iter().any(|choice| choice.finish_reason.is_some());
        serde_json::from_slice(data).map_err(foreign)
    }
}

impl<T: DeserializeOwned> Stream for SseStream<T> {
    type Item = Result<T, UpstreamError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(source) = &mut self.source else { return Poll::Ready(None) };
        let outcome = match source.lines.poll_data(context) {
            Poll::Ready(Some(Ok(data))) if data == DONE => Ok(None),
            Poll::Ready(Some(Ok(data))) => source.read(&data).map(Some),
            Poll::Ready(None) if source.has_ended => Ok(None),
            Poll::Ready(None) => Err(source.lines.ended_early()),
            Poll::Ready(Some(Err(error))) => Err(error),
            Poll::Pending => match source.silence.poll(source.lines.upstream(), context) {
                Poll::Ready(silent) => Err(silent),
                Poll::Pending => return Poll::Pending,
            },
        };
        match outcome {
            Ok(Some(value)) => Poll::Ready(Some(Ok(value))),
            Ok(None) => {
                self.source.take().into_iter().for_each(|source| source.lines.drain());
                Poll::Ready(None)
            }
            Err(error) => {
                self.source = None;
                Poll::Ready(Some(Err(error)))
            }
        }
    }
}
