//! A model whose upstreams speak tokens, as a backend: what a local engine is to the rest of the server.
//!
//! A request's sequences fly apart, each with a place of its own ([`flight`]), so that one that fails or moves does not touch
//! the others. Prompts, templates, tool calls and stop strings stay with the caller; upstreams see token ids only.

mod flight;
mod moving;

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::{Backend, EventStream, Load, Rejected, Request, channel};
use ropeway_executor::Limits;
use ropeway_text::{Special, Tokenizer};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::dispatch::{Ask, BLOCK_TOKENS};
use crate::lane::{Boarding, Lane};
use crate::prefix::{prefix_of_tokens, session_of};
use crate::upstream::Spelling;
use flight::{Flight, Shared};

/// A model computed by other servers.
#[derive(Debug)]
pub struct TokenPool {
    lane: Arc<Lane>,
    runtime: Handle,
    words: Words,
    /// Whether it is over.
    stopped: watch::Sender<bool>,
}

/// What is known of a model's tokens.
#[derive(Debug)]
struct Words {
    vocab: usize,
    /// The model's own end tokens.
    eos: Vec<u32>,
    spelling: Spelling,
}

impl Words {
    fn of(tokenizer: &Tokenizer) -> Self {
        let words = tokenizer.clone();
        // A text that can't be read has no tokens: upstreams then say themselves what is wrong.
        let spell = move |text: &str| words.encode(text, Special::PLAIN).unwrap_or_default();
        Self {
            vocab: tokenizer.vocab_size(),
            eos: tokenizer.eos_tokens().to_vec(),
            spelling: Spelling::new(spell),
        }
    }
}

impl TokenPool {
    /// A model with this tokenizer. Must be called within a runtime.
    pub fn new(lane: Arc<Lane>, tokenizer: &Tokenizer) -> Self {
        Self {
            lane,
            runtime: Handle::current(),
            words: Words::of(tokenizer),
            stopped: watch::Sender::new(false),
        }
    }

    /// Its queue and upstreams.
    pub fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    /// Turns down what no upstream could do, before anything waits.
    fn check(&self, shared: &Shared) -> Result<(), Rejected> {
        let mut members = self.lane.members();
        // Those of a kind understand the same words.
        members.dedup_by_key(|member| member.upstream.kind());
        let checked = members.iter().try_for_each(|member| flight::check(member, shared));
        checked.map_err(|error| Rejected::Unsupported(error.to_string()))
    }

    fn board(&self, request: &Request, prefix: &Arc<[u64]>) -> Result<Boarding, Rejected> {
        let ask = Ask {
            client: request.client,
            class: request.class,
            session: session_of(request.client),
            prefix: Arc::clone(prefix),
            prompt_tokens: request.prompt.len(),
            answer_tokens: 0,
            queue_timeout: request.queue_timeout,
        };
        Ok(self.lane.board(ask, request.max_tokens)?)
    }
}

impl Backend for TokenPool {
    fn submit(&self, request: Request) -> Result<EventStream, Rejected> {
        if *self.stopped.borrow() {
            return Err(Rejected::Closed);
        }
        let limits = self.limits();
        request.check(&limits)?;
        let sequences = request.sequences();
        let (sender, stream) = channel(sequences);
        let shared = Arc::new(Shared::new(request, &self.words, sender));
        self.check(&shared)?;
        let request = &shared.request;
        let prefix = prefix_of_tokens(&request.salt, &request.prompt);
        // All or none: what boarded is withdrawn when the rest finds no place.
        let boardings =
            (0..sequences).map(|_| self.board(request, &prefix)).collect::<Result<Vec<_>, _>>()?;
        for (sequence, boarding) in boardings.into_iter().enumerate() {
            let flight = Flight::new(Arc::clone(&shared), sequence as u32, limits.context);
            self.runtime.spawn(flight.fly(boarding, self.stopped.subscribe()));
        }
        Ok(stream)
    }

    fn limits(&self) -> Limits {
        let context = self.lane.context();
        Limits {
            block_tokens: BLOCK_TOKENS,
            blocks: context.div_ceil(BLOCK_TOKENS),
            context,
            vocab: self.words.vocab,
            // How it steps is the upstream's business.
            ..Limits::EXAMPLE
        }
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
