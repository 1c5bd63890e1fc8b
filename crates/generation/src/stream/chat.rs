//! Text that another server wrote: its events pass through, and are counted.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use futures_core::Stream;
use ropeway_engine::Usage;
use ropeway_text::Delta;

use super::{Finish, GenerationEvent, StopReason};
use crate::chat::ChatEvents;
use crate::error::{ErrorKind, RequestError};

/// Bytes of a token of English text, for an estimate of a prompt that nobody has counted yet.
const BYTES_OF_A_TOKEN: usize = 4;

/// A request's events from a backend that answers as text.
pub struct ChatStream {
    /// `None` once it ended or was cancelled.
    events: Option<ChatEvents>,
    ready: VecDeque<GenerationEvent>,
    choices: Vec<Counted>,
    prompt_tokens: usize,
    cached_tokens: usize,
    has_begun: bool,
    asked_at: Instant,
    /// From the question to the first output.
    first_output: Option<Duration>,
}

/// What is known of a choice.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// Its outputs, of about a token each, until the usage tells its tokens.
    generated: usize,
    called_tools: bool,
    is_over: bool,
}

impl ChatStream {
    /// The answer to a prompt of so many bytes.
    pub(crate) fn new(events: ChatEvents, choices: usize, prompt_bytes: usize) -> Self {
        Self {
            events: Some(events),
            ready: VecDeque::new(),
            choices: vec![Counted::default(); choices],
            prompt_tokens: prompt_bytes.div_ceil(BYTES_OF_A_TOKEN),
            cached_tokens: 0,
            has_begun: false,
            asked_at: Instant::now(),
            first_output: None,
        }
    }

    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// Prompt tokens that came from a cache.
    pub fn cached_tokens(&self) -> usize {
        self.cached_tokens
    }

    /// Tokens of all choices so far.
    pub fn generated_tokens(&self) -> usize {
        self.choices.iter().map(|choice| choice.generated).sum()
    }

    /// Whether the other server has begun to compute it.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Ends all choices early; their ends still come.
    pub fn cancel(&mut self) {
        self.end_open(&StopReason::EndOfText);
    }

    /// Waits for the next event on this thread; `None` after the last choice finished.
    pub fn wait(&mut self) -> Option<GenerationEvent> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut *self).poll_next(&mut context) {
                Poll::Ready(event) => return event,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    /// Notes what an event says, and adds times to a usage without any; `false` for one about a choice that is over.
    fn count(&mut self, event: &mut GenerationEvent) -> bool {
        match event {
            GenerationEvent::Placed { .. } => {}
            GenerationEvent::PromptLogprob(_) => self.has_begun = true,
            GenerationEvent::PromptProgress { cached, .. } => {
                self.has_begun = true;
                self.cached_tokens = *cached;
            }
            GenerationEvent::Output { choice, deltas, .. } => {
                self.has_begun = true;
                self.first_output.get_or_insert_with(|| self.asked_at.elapsed());
                let Some(choice) = self.open(*choice) else { return false };
                choice.generated += 1;
                choice.called_tools |= deltas.iter().any(|delta| matches!(delta, Delta::ToolCall { .. }));
            }
            GenerationEvent::Finished { choice, finish } => {
                self.time(&mut finish.usage);
                let usage = finish.usage;
                let Some(choice) = self.open(*choice) else { return false };
                choice.is_over = true;
                if usage.generated > 0 {
                    choice.generated = usage.generated;
                }
                if usage.prompt > 0 {
                    (self.prompt_tokens, self.cached_tokens) = (usage.prompt, usage.cached);
                }
            }
        }
        true
    }

    fn time(&self, usage: &mut Usage) {
        if usage.total.is_zero() {
            usage.total = self.asked_at.elapsed();
            usage.first_token = self.first_output.unwrap_or(usage.total);
        }
    }

    fn open(&mut self, index: usize) -> Option<&mut Counted> {
        self.choices.get_mut(index).filter(|choice| !choice.is_over)
    }

    fn is_over(&self) -> bool {
        self.choices.iter().all(|choice| choice.is_over)
    }

    /// Wants no more of the other server, and ends what is open.
    fn end_open(&mut self, reason: &StopReason) {
        self.events = None;
        let (prompt, cached) = (self.prompt_tokens, self.cached_tokens);
        let mut timed = Usage { prompt, cached, ..Usage::default() };
        self.time(&mut timed);
        for (index, choice) in self.choices.iter_mut().enumerate().filter(|(_, choice)| !choice.is_over) {
            choice.is_over = true;
            let usage = Usage { generated: choice.generated, ..timed };
            let (reason, called_tools) = (reason.clone(), choice.called_tools);
            let finish = Finish { reason, end_token: None, called_tools, reasoning_tokens: 0, usage };
            self.ready.push_back(GenerationEvent::Finished { choice: index, finish });
        }
    }
}

impl Stream for ChatStream {
    type Item = GenerationEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<GenerationEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(event));
            }
            if self.is_over() {
                self.events = None;
            }
            let Some(events) = &mut self.events else { return Poll::Ready(None) };
            match events.as_mut().poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(mut event)) => {
                    if self.count(&mut event) {
                        return Poll::Ready(Some(event));
                    }
                }
                Poll::Ready(None) => self.end_open(&StopReason::Failed(broken_off())),
            }
        }
    }
}

fn broken_off() -> RequestError {
    let message = "the server that computed this request ended before it was done; send it again";
    RequestError::new(ErrorKind::Overloaded, message)
}

/// Wakes a thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
