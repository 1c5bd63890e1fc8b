//! Where requests come from: a crowd of users, or a trace.

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::{Class, ClientId};

/// A visitor and the time of its first request.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    /// When.
    pub at: Duration,
    /// Its number, which the source gave it.
    pub who: u32,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Question {
    /// Who asks.
    pub client: ClientId,
    /// How urgent it is.
    pub class: Class,
    /// The conversation, if it has a name.
    pub session: Option<u64>,
    /// Whether it is of one of the accounts that ask for far more than the others.
    pub is_heavy: bool,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the answer.
    pub answer: usize,
    /// Names of the whole blocks of the prompt.
    pub prompt_blocks: Arc<[u64]>,
    /// The same, and those of the answer where they will be asked for again.
    pub all_blocks: Arc<[u64]>,
}

/// Where requests come from.
pub trait Source {
    /// The next visitor, in the order of time.
    fn visit(&mut self) -> Option<Visit>;

    /// What a visitor asks now.
    fn ask(&mut self, who: u32) -> Question;

    /// A visitor has its answer: when it asks again, if it does.
    fn answered(&mut self, who: u32, now: Duration) -> Option<Duration>;

    /// A visitor was turned down or its request was lost; it does not come back.
    fn gone(&mut self, who: u32);

    /// Tokens of an answer, as a server expects them without knowing more.
    fn expected_answer(&self) -> usize;

    /// Longest time in the queue.
    fn queue_timeout(&self) -> Option<Duration>;
}
