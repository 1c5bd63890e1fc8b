//! What a client asks of the engine, checked once.
//!
//! A [`Request`] is what the caller fills in; [`Request::check`] turns it down, with the reason, if it could never be
//! served. What passed is known to fit the model, the context and the KV memory, alone.

use std::sync::Arc;
use std::time::Duration;

pub use ropeway_executor::Class;
use ropeway_executor::{Limits, SamplingParams};

use crate::guide::Grammar;
use crate::queue::QueueFull;

/// Sequences of one request. More than a step can sample are served in parts; each takes some kilobytes while it waits.
pub const MOST_SEQUENCES: usize = 4096;

/// Who a request is for: fairness is between clients, not between requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId {
    /// Who is accounted: an API key or an address. Accounts share the machine evenly.
    pub account: u64,
    /// A session or a user of that account. The sessions of an account share what the account gets.
    pub session: u64,
}

impl ClientId {
    /// An account's only session.
    pub const fn account(account: u64) -> Self {
        Self { account, session: 0 }
    }
}

/// A prompt, and how it is to be continued.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Tokens to continue.
    pub prompt: Vec<u32>,
    /// How tokens are chosen. Sequence `i` of several uses the seed plus `i`.
    pub params: SamplingParams,
    /// Most new tokens per sequence; `None` leaves it to the model and the context. 0 is for scoring only.
    pub max_tokens: Option<usize>,
    /// Tokens before which no end token is chosen.
    pub min_tokens: usize,
    /// Report what the model thought of each prompt token but the first, with so many alternatives.
    pub score_prompt: Option<u32>,
    /// Tokens that end a sequence.
    pub ends: Vec<u32>,
    /// What the answer has to follow. Tokens it forces are not asked of the model, unless log-probabilities are wanted.
    pub grammar: Option<Arc<dyn Grammar>>,
    /// Most tokens to draft for a sequence in a step; `None` leaves it to the engine.
    pub speculation: Option<usize>,
    /// What the answer is expected to be; drafted where the answer agrees with it.
    pub prediction: Vec<u32>,
    /// How many sequences continue the prompt; 0 counts as 1.
    pub n: usize,
    /// Who asks.
    pub client: ClientId,
    /// How urgent it is.
    pub class: Class,
    /// Cached blocks are shared only between requests of the same salt.
    pub salt: Vec<u8>,
    /// Longest time from submission to the end.
    pub deadline: Option<Duration>,
    /// Longest time from submission to the first computed token.
    pub queue_timeout: Option<Duration>,
}

impl Request {
    /// A greedy continuation of `prompt` by at most `max_tokens`.
    pub fn greedy(prompt: Vec<u32>, max_tokens: usize) -> Self {
        Self { prompt, params: SamplingParams::greedy(), max_tokens: Some(max_tokens), ..Self::default() }
    }

    /// How many sequences it has.
    pub fn sequences(&self) -> usize {
        self.n.max(1)
    }

    /// Turns down what could never be served.
    pub fn check(&self, limits: &Limits) -> Result<(), Rejected> {
        let room = room(limits);
        if self.prompt.is_empty() {
            return Err(Rejected::EmptyPrompt);
        }
        if self.prompt.len() >= room {
            return Err(Rejected::TooLong { tokens: self.prompt.len(), room });
        }
        if self.max_tokens == Some(0) && self.score_prompt.is_none() {
            return Err(Rejected::NothingToDo);
        }
        let mut tokens = self.prompt.iter().chain(&self.prediction);
        if let Some(token) = tokens.find(|token| **token as usize >= limits.vocab) {
            return Err(Rejected::UnknownToken { token: *token, vocab: limits.vocab });
        }
        if self.sequences() > MOST_SEQUENCES {
            return Err(Rejected::TooManySequences { n: self.n, most: MOST_SEQUENCES });
        }
        Ok(())
    }
}

/// Tokens that a prompt and its continuation may have together, if nobody else is there.
pub fn room(limits: &Limits) -> usize {
    let fits = limits.blocks_at_once(limits.context) <= limits.blocks;
    if fits { limits.context } else { limits.context.min(limits.blocks * limits.block_tokens) }
}

/// Why a request was turned down at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// There is nothing to continue.
    #[error("the prompt is empty; give it at least one token")]
    EmptyPrompt,
    /// No token may be added.
    #[error("max_tokens is 0; ask for at least one token, or for the prompt's log-probabilities")]
    NothingToDo,
    /// The prompt leaves no room for an answer, even alone.
    #[error(
        "This model's maximum context length is {room} tokens for prompt and answer together. However, the prompt has {tokens} \
         tokens; shorten it, or raise --context or --kv-memory"
    )]
    TooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens that fit.
        room: usize,
    },
    /// A token that the model does not have.
    #[error("token {token} is outside the vocabulary of {vocab}; use this model's own tokenizer")]
    UnknownToken {
        /// The token.
        token: u32,
        /// The vocabulary's size.
        vocab: usize,
    },
    /// More sequences than a request may have.
    #[error("n is {n}, but a request may have at most {most} sequences; ask for fewer, several times")]
    TooManySequences {
        /// What was asked for.
        n: usize,
        /// The most there can be.
        most: usize,
    },
    /// Its grammar failed before it began.
    #[error("the grammar can't be used: {0}")]
    Grammar(String),
    /// As many requests wait as may.
    #[error("{waiting} requests are waiting already; try again in {} seconds", retry_after.as_secs_f64().ceil())]
    QueueFull {
        /// Sequences that wait: of everyone, or of this account where it holds its share of the queue.
        waiting: usize,
        /// When places should be free, at the speed of the recent past.
        retry_after: Duration,
    },
    /// What computes requests has no way to do what is asked.
    #[error("{0}")]
    Unsupported(String),
    /// Nothing that could compute it can be reached.
    #[error("{why}; try again in {} seconds", retry_after.as_secs_f64().ceil())]
    Unavailable {
        /// What can't be reached, and why.
        why: String,
        /// When it may be there again.
        retry_after: Duration,
    },
    /// The engine is gone or takes no more requests.
    #[error("the engine takes no more requests; it is shutting down")]
    Closed,
}

impl Rejected {
    pub(crate) fn queue_full(QueueFull { waiting, retry_after }: QueueFull) -> Self {
        Rejected::QueueFull { waiting, retry_after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        block_tokens: 4,
        blocks: 8,
        context: 64,
        step_tokens: 8,
        step_rows: 2,
        vocab: 100,
        ..Limits::EXAMPLE
    };

    #[test]
    fn what_can_never_be_served_is_turned_down_with_the_reason() {
        let good = Request::greedy(vec![1, 2, 3], 4);
        assert_eq!(good.check(&LIMITS), Ok(()));
        let cases = [
            (Request { prompt: vec![], ..good.clone() }, Rejected::EmptyPrompt),
            (Request { max_tokens: Some(0), ..good.clone() }, Rejected::NothingToDo),
            (Request { prompt: vec![1; 32], ..good.clone() }, Rejected::TooLong { tokens: 32, room: 32 }),
            (
                Request { prompt: vec![100], ..good.clone() },
                Rejected::UnknownToken { token: 100, vocab: 100 },
            ),
            (
                Request { prediction: vec![1, 100], ..good.clone() },
                Rejected::UnknownToken { token: 100, vocab: 100 },
            ),
            (
                Request { n: 5000, ..good.clone() },
                Rejected::TooManySequences { n: 5000, most: MOST_SEQUENCES },
            ),
        ];
        for (request, reason) in cases {
            assert_eq!(request.check(&LIMITS), Err(reason));
        }
    }
}
