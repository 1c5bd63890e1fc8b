//! One request on its way: its events become texts, and in the end a result.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use ropeway_engine::{Event, EventStream, FinishReason, Handle, Request, Usage};
use ropeway_text::{ChatRequest, ChatTemplate, Detokenizer, Special, StopMatcher, Stopping, Tokenizer};

use super::body::{Ask, Prompt};
use super::error::LineError;
use super::line::Endpoint;

/// A model's way with text.
pub struct Texts {
    /// Text to tokens and back.
    pub tokenizer: Tokenizer,
    /// Messages to text.
    pub template: ChatTemplate,
}

/// A request in the engine.
pub struct Flight {
    /// What the answer is known by.
    pub id: String,
    /// The form of its answer.
    pub endpoint: Endpoint,
    stream: EventStream,
    choices: Vec<Choice>,
    total: Totals,
    error: Option<LineError>,
}

/// What the sequences of a request used together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Of these, how many came from the prefix cache.
    pub cached: usize,
    /// New tokens of all sequences.
    pub generated: usize,
}

/// A request that is over.
pub struct Landed {
    /// What the answer is known by.
    pub id: String,
    /// The form of its answer.
    pub endpoint: Endpoint,
    /// Texts with the reasons of their ends, or why there are none.
    pub outcome: Result<Vec<(String, &'static str)>, LineError>,
    /// What it used.
    pub total: Totals,
}

/// One sequence as text.
struct Choice {
    detokenizer: Detokenizer,
    stops: StopMatcher,
    text: String,
    /// Why it ended, once it did.
    finish: Option<&'static str>,
}

impl Texts {
    fn tokens(&self, prompt: Prompt) -> Result<Vec<u32>, LineError> {
        match prompt {
            Prompt::Tokens(tokens) => Ok(tokens),
            Prompt::Text(text) => Ok(self.tokenizer.encode(&text, Special::PROMPT)?),
            Prompt::Messages(messages, variables) => {
                let request = ChatRequest { variables, ..ChatRequest::new(&messages) };
                Ok(self.template.encode(&request, &self.tokenizer)?)
            }
        }
    }

    fn choice(&self, endpoint: Endpoint, stops: &[String]) -> Choice {
        let detokenizer = self.tokenizer.detokenizer();
        let detokenizer = match endpoint {
            Endpoint::Chat => detokenizer,
            Endpoint::Completion => detokenizer.continuing(),
        };
        Choice { detokenizer, stops: StopMatcher::new(stops.to_vec()), text: String::new(), finish: None }
    }
}

impl Flight {
    /// Hands a request to the engine.
    pub fn submit(
        id: String,
        ask: Ask,
        texts: &Texts,
        handle: &Handle,
    ) -> Result<Flight, (String, LineError)> {
        let Ask { endpoint, prompt, stops, ignore_eos, request } = ask;
        let prompt = match texts.tokens(prompt) {
            Ok(prompt) => prompt,
            Err(error) => return Err((id, error)),
        };
        let ends = if ignore_eos { Vec::new() } else { texts.tokenizer.eos_tokens().to_vec() };
        let sequences = request.sequences();
        match handle.submit(Request { prompt, ends, ..request }) {
            Err(reason) => Err((id, reason.into())),
            Ok(stream) => {
                let choices = (0..sequences).map(|_| texts.choice(endpoint, &stops)).collect();
                Ok(Flight { id, endpoint, stream, choices, total: Totals::default(), error: None })
            }
        }
    }

    /// Takes what has arrived; `true` once it is over. The context's waker is called when there is more.
    pub fn advance(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            match Pin::new(&mut self.stream).poll_next(context) {
                Poll::Pending => return false,
                Poll::Ready(None) => return true,
                Poll::Ready(Some(event)) => self.take(event),
            }
        }
    }

    /// What came of it, once it is over.
    pub fn landed(self) -> Landed {
        let Flight { id, endpoint, choices, total, error, .. } = self;
        let texts = choices.into_iter().map(|choice| (choice.text, choice.finish.unwrap_or("stop")));
        let outcome = error.map_or_else(|| Ok(texts.collect()), Err);
        Landed { id, endpoint, outcome, total }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Prefilled { .. } | Event::Scored(_) => {}
            Event::Token { sequence, sampled } => {
                if self.choices[sequence as usize].push(sampled.token) {
                    self.stream.cancel(sequence);
                }
            }
            Event::Finished { sequence, reason, usage } => self.finish(sequence, reason, &usage),
        }
    }

    fn finish(&mut self, sequence: u32, reason: FinishReason, usage: &Usage) {
        self.total.prompt = self.total.prompt.max(usage.prompt);
        self.total.cached = self.total.cached.max(usage.cached);
        self.total.generated += usage.generated;
        match reason {
            FinishReason::Failed(error) => self.error = Some(error.into()),
            FinishReason::Length => self.choices[sequence as usize].finish("length"),
            FinishReason::End(_)
            | FinishReason::Complete
            | FinishReason::Cancelled
            | FinishReason::TimedOut => {
                self.choices[sequence as usize].finish("stop");
            }
        }
    }
}

impl Choice {
    /// Takes the next token; `true` if a stop string is complete by it.
    fn push(&mut self, token: u32) -> bool {
        if self.finish.is_some() {
            return false;
        }
        match self.stops.push(self.detokenizer.push(token)) {
            Stopping::Text(text) => {
                self.text.push_str(&text);
                false
            }
            Stopping::Stopped { text, .. } => {
                self.text.push_str(&text);
                self.finish = Some("stop");
                true
            }
        }
    }

    /// There are no more tokens. A stop string that ended it already stays the reason.
    fn finish(&mut self, reason: &'static str) {
        if self.finish.is_some() {
            return;
        }
        self.finish = Some(reason);
        match self.stops.push(&self.detokenizer.finish()) {
            Stopping::Text(text) => self.text.push_str(&(text + &self.stops.finish())),
            Stopping::Stopped { text, .. } => {
                self.text.push_str(&text);
                self.finish = Some("stop");
            }
        }
    }
}
