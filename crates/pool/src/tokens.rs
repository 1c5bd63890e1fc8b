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
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::dispatch::{Ask, BLOCK_TOKENS};
use crate::error::UpstreamError;
use crate::lane::{Boarding, Lane, Refusal};
use crate::prefix::prefix_of_tokens;
use flight::Flight;

/// When to come back to a model none of whose upstreams can be reached: they are probed more often than that.
const COME_BACK: Duration = Duration::from_secs(5);

/// A model computed by other servers.
#[derive(Debug)]
pub struct TokenPool {
    lane: Arc<Lane>,
    runtime: Handle,
    vocab: usize,
    /// Whether it is over.
    stopped: watch::Sender<bool>,
}

impl TokenPool {
    /// A model with so many tokens in its vocabulary. Must be called within a runtime.
    pub fn new(lane: Arc<Lane>, vocab: usize) -> Self {
        Self {
            lane,
            runtime: Handle::current(),
            vocab,
            stopped: watch::Sender::new(false),
        }
    }

    /// Its queue and upstreams.
    pub fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    /// Turns down what no upstream could do, before anything waits.
    fn check(&self, request: &Request) -> Result<(), Rejected> {
        request.check(&self.limits())?;
        let members = self.lane.members();
        let refusals = members.iter().map(|member| flight::check(member, request));
        match refusals.collect::<Result<Vec<()>, UpstreamError>>() {
            Ok(_) => Ok(()),
            Err(error) => Err(Rejected::Unsupported(error.to_string())),
        }
    }

    fn board(&self, request: &Request, prefix: &Arc<[u64]>) -> Result<Boarding, Rejected> {
        let session = request.client.session;
        let ask = Ask {
            client: request.client,
            class: request.class,
            session: (session != 0).then_some(session),
            prefix: Arc::clone(prefix),
            prompt_tokens: request.prompt.len(),
            answer_tokens: 0,
            queue_timeout: request.queue_timeout,
        };
        self.lane.board(ask, request.max_tokens).map_err(turned_down)
    }
}

/// A refusal in the words of an engine.
fn turned_down(refusal: Refusal) -> Rejected {
    match refusal {
        Refusal::Full(full) => Rejected::QueueFull { waiting: full.waiting, retry_after: full.retry_after },
        Refusal::NobodyThere { why } => Rejected::Unavailable { why, retry_after: COME_BACK },
    }
}

impl Backend for TokenPool {
    fn submit(&self, request: Request) -> Result<EventStream, Rejected> {
        if *self.stopped.borrow() {
            return Err(Rejected::Closed);
        }
        self.check(&request)?;
        let sequences = request.sequences();
        let prefix = prefix_of_tokens(&request.salt, &request.prompt);
        // All or none: what boarded is withdrawn when the rest finds no place.
        let boardings =
            (0..sequences).map(|_| self.board(&request, &prefix)).collect::<Result<Vec<_>, _>>()?;
        let (sender, stream) = channel(sequences);
        let (sender, request) = (Arc::new(sender), Arc::new(request));
        let context = self.limits().context;
        for (sequence, boarding) in boardings.into_iter().enumerate() {
            let flight = Flight::new(Arc::clone(&request), sequence as u32, Arc::clone(&sender), context);
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
            vocab: self.vocab,
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

    fn stop(&self) {
        self.stopped.send_replace(true);
    }
}
