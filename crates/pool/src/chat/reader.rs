//! The chunks of a streamed answer as events.
//!
//! ```text
//! chunk {"choices": [{"index": 0, "delta": {..}}]}      -> Output
//! chunk {"choices": [{"finish_reason": "stop"}]}         -> held: the usage comes last
//! chunk {"choices": [], "usage": {..}}, or the end       -> Finished for each
//! chunk {"error": ..}                                    -> an error
//! ```

use ropeway_engine::Usage;
use ropeway_generation::{Finish, GenerationEvent, Job};
use serde_json::Value;

use super::choice::ChoiceReader;
use crate::error::UpstreamError;

/// Turns the chunks of `/v1/chat/completions` or `/v1/completions` into events.
pub struct AnswerReader {
    upstream: String,
    choices: Vec<ChoiceReader>,
    usage: Counts,
    /// Whether the choices' ends were handed out.
    has_ended: bool,
}

/// What the server counted, for all choices together.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    prompt: usize,
    cached: usize,
    generated: usize,
    reasoning: Option<usize>,
}

impl AnswerReader {
    /// A reader of the answer to a job by the server of this name.
    pub fn new(job: &Job, upstream: &str) -> Self {
        Self {
            upstream: upstream.into(),
            choices: (0..job.n.get()).map(|_| ChoiceReader::new(job)).collect(),
            usage: Counts::default(),
            has_ended: false,
        }
    }

    /// Takes the next chunk.
    pub fn read(&mut self, chunk: &Value) -> Result<Vec<GenerationEvent>, UpstreamError> {
        if let Some(error) = self.failure(chunk) {
            return Err(error);
        }
        let mut events = Vec::new();
        for given in chunk["choices"].as_array().into_iter().flatten() {
            events.extend(self.choice(given));
        }
        let has_usage = chunk["usage"].is_object();
        self.count(chunk);
        let is_over = self.choices.iter().all(|choice| choice.ended.is_some());
        // Once an answer was ended here, nobody waits for what the server counts.
        if is_over && (has_usage || self.choices.iter().any(|choice| choice.is_cut)) {
            events.extend(self.finish());
        }
        Ok(events)
    }

    /// There are no more chunks: the ends that are still held. Choices that the server did not end have none.
    pub fn finish(&mut self) -> Vec<GenerationEvent> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Vec::new();
        }
        let shares = self.shares();
        let ends = self.choices.iter().zip(shares).enumerate().filter_map(|(index, (choice, usage))| {
            let (reason, called_tools) = (choice.ended.clone()?, choice.called_tools());
            let counted = self.usage.reasoning.filter(|_| self.choices.len() == 1);
            let reasoning_tokens = counted.unwrap_or(choice.thought_pieces);
            let finish = Finish { reason, end_token: None, called_tools, reasoning_tokens, usage };
            Some(GenerationEvent::Finished { choice: index, finish })
        });
        ends.collect()
    }

    /// Whether nothing more is wanted of the server.
    pub fn is_over(&self) -> bool {
        self.has_ended
    }

    /// Whether the server ended every choice: a connection that closes before that broke off.
    pub fn is_complete(&self) -> bool {
        self.choices.iter().all(|choice| choice.ended.is_some())
    }

    fn choice(&mut self, given: &Value) -> Option<GenerationEvent> {
        let index = given["index"].as_u64().unwrap_or(0) as usize;
        let deltas = self.choices.get_mut(index)?.read(given);
        (!deltas.is_empty()).then(|| GenerationEvent::Output { choice: index, deltas, tokens: Vec::new() })
    }

    fn count(&mut self, chunk: &Value) {
        let usage = &chunk["usage"];
        let number = |value: &Value| value.as_u64().map(|number| number as usize);
        if let Some(prompt) = number(&usage["prompt_tokens"]) {
            let reasoning = number(&usage["completion_tokens_details"]["reasoning_tokens"]);
            self.usage = Counts {
                prompt,
                generated: number(&usage["completion_tokens"]).unwrap_or(0),
                cached: number(&usage["prompt_tokens_details"]["cached_tokens"]).unwrap_or(self.usage.cached),
                reasoning: reasoning
                    .or_else(|| number(&usage["reasoning_tokens"]))
                    .filter(|count| *count > 0),
            };
        }
        // llama-server's own word for it.
        if let Some(cached) = number(&chunk["timings"]["cache_n"]) {
            self.usage.cached = self.usage.cached.max(cached);
        }
    }

    /// What each choice used. Servers count all of them together: the last one gets what the pieces of the others leave.
    fn shares(&self) -> Vec<Usage> {
        let Counts { prompt, cached, generated, .. } = self.usage;
        let cached = cached.min(prompt);
        let mut left = generated;
        let last = self.choices.len() - 1;
        let share = |(index, choice): (usize, &ChoiceReader)| {
            let own = match generated {
                0 => choice.pieces,
                _ if index == last => left,
                _ => choice.pieces.min(left),
            };
            left = left.saturating_sub(own);
            Usage { prompt, cached, generated: own, ..Usage::default() }
        };
        self.choices.iter().enumerate().map(share).collect()
    }

    /// The error that a chunk tells of.
    fn failure(&self, chunk: &Value) -> Option<UpstreamError> {
        let error = if chunk["object"] == "error" { chunk } else { chunk.get("error")? };
        if error.is_null() {
            return None;
        }
        let upstream = self.upstream.clone();
        let message = error["message"].as_str().or_else(|| error.as_str()).unwrap_or("it did not say why");
        let status = error["code"].as_u64().and_then(|code| u16::try_from(code).ok());
        Some(match status {
            Some(status @ (429 | 503)) => UpstreamError::Busy { upstream, status, retry_after: None },
            Some(status @ 400..=499) => UpstreamError::Refused { upstream, status, message: message.into() },
            _ => UpstreamError::Failed { upstream, why: message.into() },
        })
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
