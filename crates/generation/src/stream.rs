//! The text of a request as it is generated: made of a backend's tokens ([`tokens`]), or as another server wrote it
//! ([`chat`]).

mod chat;
mod tokens;

pub(crate) use self::chat::ChatStream;
pub(crate) use self::tokens::TokenStream;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use ropeway_engine::Usage;
use ropeway_executor::Sampled;
use ropeway_text::Delta;

use crate::error::RequestError;

/// Something that happened to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum GenerationEvent {
    /// Another server computes a choice from here on; never sent for what this process computes.
    Placed {
        /// Which choice, from 0.
        choice: usize,
        /// The server's name.
        upstream: Arc<str>,
    },
    /// A part of the prompt is computed.
    PromptProgress {
        /// Prompt tokens computed so far, cached ones included.
        computed: usize,
        /// Of these, how many came from the prefix cache.
        cached: usize,
    },
    /// The log-probability of a prompt token, in the order of the prompt from its second token on.
    PromptLogprob(Sampled),
    /// More of a choice. Either part may be empty.
    Output {
        /// Which choice, from 0.
        choice: usize,
        /// What is new.
        deltas: Vec<Delta>,
        /// The tokens since the last output of this choice.
        tokens: Vec<Sampled>,
    },
    /// A choice is over.
    Finished {
        /// Which choice, from 0.
        choice: usize,
        /// How it ended.
        finish: Finish,
    },
}

/// How a choice ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    /// Why it ended.
    pub reason: StopReason,
    /// The end token that the model chose, if it was one that ended it and it is known.
    pub end_token: Option<u32>,
    /// Whether it calls tools.
    pub called_tools: bool,
    /// Tokens of its reasoning.
    pub reasoning_tokens: usize,
    /// What it used, in tokens and time.
    pub usage: Usage,
}

/// Why a choice ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model ended it, or its grammar is complete.
    EndOfText,
    /// It came to this stop string.
    StopString(String),
    /// It has as many tokens as were asked for, or as fit.
    Length,
    /// It could not go on.
    Failed(RequestError),
}

/// A request's text as it is generated. Dropping it cancels the request.
pub struct GenerationStream {
    source: Source,
}

/// Where events come from.
enum Source {
    Tokens(TokenStream),
    Text(ChatStream),
}

impl From<TokenStream> for GenerationStream {
    fn from(stream: TokenStream) -> Self {
        Self { source: Source::Tokens(stream) }
    }
}

impl From<ChatStream> for GenerationStream {
    fn from(stream: ChatStream) -> Self {
        Self { source: Source::Text(stream) }
    }
}

impl GenerationStream {
    /// Tokens of the prompt; an estimate while nobody has counted them.
    pub fn prompt_tokens(&self) -> usize {
        match &self.source {
            Source::Tokens(stream) => stream.prompt_tokens(),
            Source::Text(stream) => stream.prompt_tokens(),
        }
    }

    /// Prompt tokens that came from the prefix cache, as far as known.
    pub fn cached_tokens(&self) -> usize {
        match &self.source {
            Source::Tokens(stream) => stream.cached_tokens(),
            Source::Text(stream) => stream.cached_tokens(),
        }
    }

    /// Tokens of all choices so far, including those whose text is not handed out yet; an estimate while nobody has counted
    /// them.
    pub fn generated_tokens(&self) -> usize {
        match &self.source {
            Source::Tokens(stream) => stream.generated_tokens(),
            Source::Text(stream) => stream.generated_tokens(),
        }
    }

    /// Whether the backend has begun to compute it.
    pub fn has_begun(&self) -> bool {
        match &self.source {
            Source::Tokens(stream) => stream.has_begun(),
            Source::Text(stream) => stream.has_begun(),
        }
    }

    /// Ends all choices early; their [`GenerationEvent::Finished`] still comes.
    pub fn cancel(&mut self) {
        match &mut self.source {
            Source::Tokens(stream) => stream.cancel(),
            Source::Text(stream) => stream.cancel(),
        }
    }

    /// Waits for the next event on this thread; `None` after the last choice finished.
    pub fn wait(&mut self) -> Option<GenerationEvent> {
        match &mut self.source {
            Source::Tokens(stream) => stream.wait(),
            Source::Text(stream) => stream.wait(),
        }
    }
}

impl Stream for GenerationStream {
    type Item = GenerationEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<GenerationEvent>> {
        match &mut self.source {
            Source::Tokens(stream) => Pin::new(stream).poll_next(context),
            Source::Text(stream) => Pin::new(stream).poll_next(context),
        }
    }
}

/// The text among deltas. A continuation's deltas are nothing else.
pub fn text_of(deltas: Vec<Delta>) -> String {
    let text = |delta| if let Delta::Text(text) = delta { Some(text) } else { None };
    deltas.into_iter().filter_map(text).collect()
}
