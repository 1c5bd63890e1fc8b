//! Text made of tokens: a backend's events, detokenised, ended at stop strings and parsed.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use ropeway_engine::{DraftTotals, Event, EventStream, FinishReason, Usage};
use ropeway_executor::Sampled;

use super::{Finish, GenerationEvent, StopReason};
use crate::choice::{ChoiceText, EarlyEnd, Output};
use crate::error::{ErrorKind, RequestError};

/// A request's events from a backend that sends tokens.
pub struct TokenStream {
    events: EventStream,
    choices: Vec<ChoiceText>,
    ready: VecDeque<GenerationEvent>,
    prompt_tokens: usize,
    cached_tokens: usize,
    /// Choices that are not over.
    open: usize,
    /// Whether the backend has begun to compute it.
    has_begun: bool,
    queue_timeout: Option<Duration>,
}

impl TokenStream {
    pub(crate) fn new(
        events: EventStream,
        choices: Vec<ChoiceText>,
        prompt_tokens: usize,
        queue_timeout: Option<Duration>,
    ) -> Self {
        let (open, ready) = (choices.len(), VecDeque::new());
        Self {
            events,
            choices,
            ready,
            prompt_tokens,
            cached_tokens: 0,
            open,
            has_begun: false,
            queue_timeout,
        }
    }

    /// Reports tokens as soon as they are chosen, even while their text is held back.
    pub(crate) fn with_tokens_at_once(mut self) -> Self {
        for choice in &mut self.choices {
            choice.early = Some(0);
        }
        self
    }

    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// Prompt tokens that came from the prefix cache, as far as known.
    pub fn cached_tokens(&self) -> usize {
        self.cached_tokens
    }

    /// Tokens of all choices so far, including those whose text is not handed out yet.
    pub fn generated_tokens(&self) -> usize {
        self.choices.iter().map(|choice| choice.generated).sum()
    }

    /// Whether the backend has begun to compute it.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Ends all choices early; their [`GenerationEvent::Finished`] still comes.
    pub fn cancel(&self) {
        (0..self.choices.len()).for_each(|choice| self.events.cancel(choice as u32));
    }

    /// Waits for the next event on this thread; `None` after the last choice finished.
    pub fn wait(&mut self) -> Option<GenerationEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.open == 0 {
                return None;
            }
            match self.events.wait() {
                Some(event) => self.take(event),
                None => self.open = 0,
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Prefilled { computed, cached } => {
                self.has_begun = true;
                self.cached_tokens = cached;
                self.ready.push_back(GenerationEvent::PromptProgress { computed, cached });
            }
            Event::Placed { sequence, upstream } => {
                self.ready.push_back(GenerationEvent::Placed { choice: sequence as usize, upstream });
            }
            Event::Scored(sampled) => self.ready.push_back(GenerationEvent::PromptLogprob(sampled)),
            Event::Token { sequence, sampled, drafting } => self.token(sequence as usize, sampled, drafting),
            Event::Finished { sequence, reason, usage } => self.finished(sequence as usize, reason, usage),
        }
    }

    fn token(&mut self, index: usize, sampled: Sampled, drafting: DraftTotals) {
        self.has_begun = true;
        let Some(choice) = self.choices.get_mut(index).filter(|choice| choice.is_open) else { return };
        let (output, end) = choice.push(sampled);
        let generated = choice.generated;
        self.hand_out(index, output);
        if let Some(end) = end {
            self.events.cancel(index as u32);
            let (prompt, cached) = (self.prompt_tokens, self.cached_tokens);
            let usage = Usage { prompt, cached, generated, drafting, ..Usage::default() };
            let reason = match end {
                EarlyEnd::StopString(stop) => StopReason::StopString(stop),
                EarlyEnd::CallsFull => StopReason::EndOfText,
            };
            self.close(index, reason, None, usage);
        }
    }

    fn finished(&mut self, index: usize, reason: FinishReason, usage: Usage) {
        let Some(index) = self.ended(index, &reason) else { return };
        let end_token = if let FinishReason::End(token) = reason { Some(token) } else { None };
        let reason = match reason {
            FinishReason::End(_) | FinishReason::Complete | FinishReason::Cancelled => StopReason::EndOfText,
            FinishReason::Length => StopReason::Length,
            FinishReason::TimedOut => StopReason::Failed(self.timed_out()),
            FinishReason::Failed(error) => StopReason::Failed(error.into()),
        };
        let choice = &mut self.choices[index];
        choice.generated = choice.generated.max(usage.generated);
        let (output, stop) = choice.finish();
        self.hand_out(index, output);
        let end_token = end_token.filter(|_| stop.is_none());
        self.close(index, stop.map_or(reason, StopReason::StopString), end_token, usage);
    }

    /// The choice that ended. A backend that is gone does not know which one it ended: any that is open.
    fn ended(&self, index: usize, reason: &FinishReason) -> Option<usize> {
        if self.choices.get(index).is_some_and(|choice| choice.is_open) {
            return Some(index);
        }
        let failed = matches!(reason, FinishReason::Failed(_));
        self.choices.iter().position(|choice| choice.is_open).filter(|_| failed)
    }

    fn timed_out(&self) -> RequestError {
        if !self.has_begun && self.queue_timeout.is_some() {
            let message =
                "the server has too much to do: the request waited longer than it may; try again later";
            return RequestError::new(ErrorKind::QueueTimeout, message);
        }
        let message = "the request took longer than it may; ask for less, or try again later";
        RequestError::new(ErrorKind::Timeout, message)
    }

    fn close(&mut self, index: usize, reason: StopReason, end_token: Option<u32>, usage: Usage) {
        let choice = &mut self.choices[index];
        let output = choice.close();
        let (called_tools, reasoning_tokens) = (choice.called_tools, choice.reasoning_tokens);
        self.hand_out(index, output);
        self.open -= 1;
        let finish = Finish { reason, end_token, called_tools, reasoning_tokens, usage };
        self.ready.push_back(GenerationEvent::Finished { choice: index, finish });
    }

    fn hand_out(&mut self, choice: usize, output: Output) {
        if !output.is_empty() {
            let Output { deltas, tokens } = output;
            self.ready.push_back(GenerationEvent::Output { choice, deltas, tokens });
        }
    }
}

impl Stream for TokenStream {
    type Item = GenerationEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<GenerationEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(event));
            }
            if self.open == 0 {
                return Poll::Ready(None);
            }
            match Pin::new(&mut self.events).poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(event)) => self.take(event),
                Poll::Ready(None) => self.open = 0,
            }
        }
    }
}
