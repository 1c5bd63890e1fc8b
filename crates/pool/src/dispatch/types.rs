//! What goes into the dispatcher and what comes out of it: plain data.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::{Class, ClientId};

/// Tokens of a prompt that a hash of [`Ask::prefix`] stands for, unless [`Settings::block_tokens`] says otherwise. Smaller
/// blocks would find a little more of short prompts and take more memory for long ones.
pub const BLOCK_TOKENS: usize = 128;

/// An upstream of this dispatcher. Ids are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamId(pub(super) u32);

impl UpstreamId {
    /// Its number: 0 for the first upstream that was added, and so on.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A request in the dispatcher's care, from [`enqueue`](super::Dispatcher::enqueue) to its end. Later requests have larger
/// tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How an upstream is chosen among those with room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// The one that served the session or holds the longest part of the prompt, unless it has too much to do already; else as
    /// [`Routing::LeastTokens`].
    #[default]
    Affinity,
    /// The one with the fewest outstanding tokens for its weight.
    LeastTokens,
    /// Any.
    Random,
    /// One after another.
    RoundRobin,
}

impl Routing {
    /// All of them.
    pub const ALL: [Routing; 4] =
        [Routing::Affinity, Routing::LeastTokens, Routing::Random, Routing::RoundRobin];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Routing::Affinity => "affinity",
            Routing::LeastTokens => "least-tokens",
            Routing::Random => "random",
            Routing::RoundRobin => "round-robin",
        }
    }
}

/// How the dispatcher is set up.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How upstreams are chosen.
    pub routing: Routing,
    /// Most requests that wait; more are turned down.
    pub most_waiting: usize,
    /// Tokens that a hash of [`Ask::prefix`] stands for.
    pub block_tokens: usize,
    /// Blocks of which it is remembered who holds them, about 110 bytes each.
    pub prefix_blocks: usize,
    /// Sessions of which it is remembered who served them, about 50 bytes each.
    pub sessions: usize,
}

impl Default for Settings {
    /// 32 million tokens of prompts take 29 MB, sessions 3 MB.
    fn default() -> Self {
        Self {
            routing: Routing::Affinity,
            most_waiting: ropeway_engine::settings::DEFAULT_QUEUE,
            block_tokens: BLOCK_TOKENS,
            prefix_blocks: 1 << 18,
            sessions: 1 << 16,
        }
    }
}

/// What an upstream can take.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Its share of the work compared with other upstreams; above 0.
    pub weight: f64,
    /// Most requests at a time; adapts if `None`.
    pub concurrency: Option<NonZeroUsize>,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { weight: 1.0, concurrency: None }
    }
}

/// A request, as far as its place in the queue and its upstream depend on it.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Who asks.
    pub client: ClientId,
    /// How urgent it is.
    pub class: Class,
    /// A conversation that stays at one upstream; unique over all accounts.
    pub session: Option<u64>,
    /// Hashes of the whole blocks of the prompt, each of which covers everything before it, first to last.
    pub prefix: Arc<[u64]>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Expected tokens of the answer; what it really took is put right at the end.
    pub answer_tokens: usize,
    /// Longest time in the queue.
    pub queue_timeout: Option<Duration>,
}

/// A request whose turn it is, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The request.
    pub ticket: Ticket,
    /// Where it goes.
    pub upstream: UpstreamId,
    /// Tokens of its prompt that this upstream should still hold.
    pub cached_tokens: usize,
}

/// How an attempt at an upstream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was answered.
    Done,
    /// The upstream failed; counts against it.
    Failed,
    /// The upstream had no room for it; it is left alone for a moment.
    Busy {
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The upstream turned the request itself down, as any other would have: its health is fine.
    Refused,
    /// The client left.
    Cancelled,
}

/// What looking after an upstream found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It answers.
    Up {
        /// Requests that it computes, where it says so.
        running: Option<usize>,
        /// Requests in its own queue, where it says so.
        waiting: Option<usize>,
    },
    /// It does not.
    Down,
}

/// Why a request is not tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Spent {
    /// It failed at several upstreams in a row.
    #[error("the request failed {0} times in a row")]
    Attempts(u32),
    /// So much is tried again already that more would only add to the load.
    #[error("too many requests are tried again at the moment")]
    Budget,
    /// The ticket has ended.
    #[error("the request has ended already")]
    Over,
}

/// An upstream as operators see it.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamStatus {
    /// Which one.
    pub upstream: UpstreamId,
    /// Whether it can be given requests; `false` while it is down, ejected, left alone after being busy, or being removed.
    pub is_up: bool,
    /// Whether it is left alone because it was busy, and has not failed.
    pub is_resting: bool,
    /// When it comes back, if it is ejected or left alone.
    pub out_until: Option<Duration>,
    /// Requests that it has now.
    pub in_flight: usize,
    /// Most requests it may have now.
    pub limit: usize,
    /// Prompt tokens to compute and answer tokens to come, as expected.
    pub outstanding_tokens: usize,
    /// What it was given and what came of it.
    pub totals: Totals,
}

/// Counters of an upstream that only ever grow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Attempts.
    pub requests: u64,
    /// Tokens that it generated.
    pub tokens: u64,
    /// Attempts that failed.
    pub errors: u64,
    /// Attempts that were tried again elsewhere before their first token.
    pub retries: u64,
    /// Streams that went on elsewhere.
    pub moved: u64,
    /// Times that it was ejected or found down.
    pub ejections: u64,
    /// Tokens of prompts.
    pub prompt_tokens: u64,
    /// Of these, how many it should have held already.
    pub prefix_hit_tokens: u64,
    /// First tokens.
    pub first_tokens: u64,
    /// From dispatch to the first token, all added up.
    pub first_token_time: Duration,
}

impl Totals {
    /// Mean time from dispatch to the first token.
    pub fn mean_first_token(&self) -> Option<Duration> {
        (self.first_tokens > 0).then(|| self.first_token_time.div_f64(self.first_tokens as f64))
    }
}
