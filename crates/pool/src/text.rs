//! A model whose upstreams answer as text, as a backend: conversations go to their chat endpoint as they are, and the answer is
//! translated ([`chat`](crate::chat)).
//!
//! All choices of a request come in one answer. One that fails before anything of it was handed out is tried elsewhere; later it ends
//! with an error, because nobody here knows the tokens it could go on from.

mod flight;

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use ropeway_engine::Load;
use ropeway_generation::{ChatAsk, ChatBackend, ChatEvents, ErrorKind, Job, Prompt, RequestError};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::chat;
use crate::dispatch::Ask;
use crate::lane::Lane;
use crate::prefix::{prefix_of_text, session_of};
use flight::Flight;

/// Bytes of a prompt that stand for a token where nobody counts them.
const TOKEN_BYTES: usize = 4;

/// A model that answers as text.
#[derive(Debug)]
pub struct TextPool {
    lane: Arc<Lane>,
    runtime: Handle,
    stopped: watch::Sender<bool>,
}

impl TextPool {
    /// A model with these upstreams. Must be called within a runtime.
    pub fn new(lane: Arc<Lane>) -> Self {
        Self { lane, runtime: Handle::current(), stopped: watch::Sender::new(false) }
    }

    /// Turns down what some upstream has no words for, before anything waits.
    fn check(&self, job: &Job) -> Result<(), RequestError> {
        let mut members = self.lane.members();
        // Those of a kind understand the same words.
        members.dedup_by_key(|member| member.upstream.kind());
        let kinds = members.iter().filter_map(|member| member.upstream.kind());
        kinds.into_iter().try_for_each(|kind| chat::body(job, kind, "").map(drop))
    }

    fn ask_for_place(ask: &ChatAsk) -> Ask {
        let text = prompt_text(&ask.job.prompt);
        Ask {
            client: ask.request.client,
            class: ask.request.class,
            session: session_of(ask.request.client),
            prefix: prefix_of_text(&ask.request.salt, text.as_bytes()),
            prompt_tokens: text.len() / TOKEN_BYTES + 1,
            answer_tokens: 0,
            queue_timeout: ask.request.queue_timeout,
        }
    }
}

/// The text of a prompt, for its beginning's name and its length.
fn prompt_text(prompt: &Prompt) -> String {
    match prompt {
        Prompt::Conversation(conversation) => {
            let parts = conversation.tools.iter().chain(&conversation.messages);
            parts.map(ToString::to_string).collect()
        }
        Prompt::Text(text) => text.clone(),
        Prompt::Between { .. } | Prompt::Tokens(_) => String::new(),
    }
}

impl ChatBackend for TextPool {
    fn ask(&self, ask: ChatAsk) -> Result<ChatEvents, RequestError> {
        if *self.stopped.borrow() {
            return Err(RequestError::new(ErrorKind::Overloaded, "the server is shutting down"));
        }
        self.check(&ask.job)?;
        let boarding = self.lane.board(Self::ask_for_place(&ask), ask.job.max_tokens)?;
        let (events, mut reader) = mpsc::unbounded_channel();
        self.runtime.spawn(Flight::new(ask, events).fly(boarding, self.stopped.subscribe()));
        Ok(Box::pin(stream::poll_fn(move |context| reader.poll_recv(context))))
    }

    fn context(&self) -> usize {
        self.lane.context()
    }

    fn load(&self) -> Load {
        self.lane.load()
    }

    fn queue_wait(&self) -> Duration {
        self.lane.queue_wait()
    }

    fn outage(&self) -> Option<String> {
        self.lane.outage()
    }

    fn stop(&self) {
        self.stopped.send_replace(true);
    }
}
