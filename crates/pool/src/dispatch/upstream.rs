//! One upstream: what it has to do, what it may take, how it is doing.

use std::time::Duration;

use super::health::{Change, Health, State};
use super::ordered::Ordered;
use super::prefixes::Holder;
use super::share::Room;
use super::types::{Capacity, Ended, Probe, Totals, UpstreamId, UpstreamStatus};
use super::window::{FirstToken, Window};

/// One upstream. Whoever changes it does so through [`Roster::change`](super::roster::Roster::change), which keeps the orders of
/// upstreams true.
#[derive(Debug)]
pub struct Upstream {
    id: UpstreamId,
    weight: f64,
    window: Window,
    health: Health,
    /// How often it was lost, and with it what it held.
    epoch: u32,
    in_flight: usize,
    /// Prompt tokens to compute, as expected, and answer tokens to come.
    prompt_tokens: usize,
    answer_tokens: usize,
    /// When it was last given a request, in requests.
    turn: u64,
    is_leaving: bool,
    totals: Totals,
}

/// An upstream's place among those with room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    load: Ordered,
    turn: u64,
    /// Whose.
    pub id: UpstreamId,
}

/// A request that is sent.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Of these, how many it should hold.
    pub cached: usize,
    /// Expected tokens of the answer.
    pub answer: usize,
}

impl Sending {
    /// Prompt tokens to compute.
    pub fn computed(self) -> usize {
        self.prompt - self.cached
    }
}

/// Tokens of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Tokens {
    /// How many.
    pub count: usize,
    /// How many of them were outstanding.
    pub expected: usize,
    /// Since those before them; zero if the first came together with them.
    pub time: Duration,
}

/// How an attempt ended, with what it leaves.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// How it ended.
    pub ended: Ended,
    /// When it was sent.
    pub sent: Duration,
    /// Prompt tokens that were still to be computed, and answer tokens to come.
    pub prompt_left: usize,
    pub answer_left: usize,
}

impl Upstream {
    /// One that was just added.
    pub fn new(id: UpstreamId, capacity: Capacity) -> Self {
        let weight = if capacity.weight.is_finite() { capacity.weight.max(f64::MIN_POSITIVE) } else { 1.0 };
        Self {
            id,
            weight,
            window: Window::new(capacity.concurrency),
            health: Health::default(),
            epoch: 0,
            in_flight: 0,
            prompt_tokens: 0,
            answer_tokens: 0,
            turn: 0,
            is_leaving: false,
            totals: Totals::default(),
        }
    }

    /// This upstream until it is lost.
    pub fn holder(&self) -> Holder {
        Holder { upstream: self.id, epoch: self.epoch }
    }

    /// Whether it is given requests at all.
    pub fn is_in(&self) -> bool {
        self.health.state() == State::In && !self.is_leaving
    }

    /// Whether it is given one more now.
    pub fn has_room(&self) -> bool {
        self.is_in() && self.in_flight < self.window.limit()
    }

    /// Requests that it has, and how many it may have.
    pub fn room(&self) -> Room {
        Room { taken: self.in_flight, most: self.window.limit() }
    }

    /// Whether a stream that was broken off elsewhere may go on here beyond the limit.
    pub fn bears_one_more(&self) -> bool {
        self.is_in() && self.in_flight < self.window.limit_for_streams()
    }

    /// Its number.
    pub fn id(&self) -> UpstreamId {
        self.id
    }

    /// Whether nothing is left of one that was removed.
    pub fn is_gone(&self) -> bool {
        self.is_leaving && self.in_flight == 0
    }

    /// Outstanding tokens for its weight.
    pub fn load(&self) -> f64 {
        self.outstanding_tokens() as f64 / self.weight
    }

    /// Where it stands among those with room: less goes first. Of several that have nothing to do, the one that was idle for
    /// longest: so that all of their caches are used.
    pub fn place(&self) -> Place {
        Place { load: Ordered(self.load()), turn: self.turn, id: self.id }
    }

    /// Prompt tokens to compute before a newcomer's, for its weight.
    pub fn backlog(&self) -> f64 {
        self.prompt_tokens as f64 / self.weight
    }

    /// Its share of the work.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// Prompt tokens to compute and answer tokens to come.
    pub fn outstanding_tokens(&self) -> usize {
        self.prompt_tokens + self.answer_tokens
    }

    /// When it comes back by itself.
    pub fn returns_at(&self) -> Option<Duration> {
        self.health.returns_at()
    }

    /// How it looks from outside.
    pub fn status(&self) -> UpstreamStatus {
        UpstreamStatus {
            upstream: self.id,
            is_up: self.is_in(),
            is_resting: matches!(self.health.state(), State::Out { is_ejected: false, .. }),
            out_until: self.returns_at(),
            in_flight: self.in_flight,
            limit: self.window.limit(),
            outstanding_tokens: self.outstanding_tokens(),
            totals: self.totals,
        }
    }

    /// No more requests.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Comes back if it is time.
    pub fn advance(&mut self, now: Duration) {
        let change = self.health.wait_is_over(now);
        self.follow(change);
    }

    /// A probe came back.
    pub fn probed(&mut self, probe: Probe, now: Duration) {
        let change = match probe {
            Probe::Up { running, waiting } => {
                self.window.probed(running, waiting, now);
                self.health.is_up()
            }
            Probe::Down => self.health.is_down(),
        };
        self.follow(change);
    }

    fn follow(&mut self, change: Change) {
        match change {
            Change::None => {}
            Change::Lost => {
                self.epoch += 1;
                self.totals.ejections += 1;
            }
            Change::Back => self.window.restart(),
        }
    }

    /// A request is sent, the `turn`th of all.
    pub fn sent(&mut self, sending: Sending, turn: u64) {
        self.in_flight += 1;
        self.turn = turn;
        self.prompt_tokens += sending.computed();
        self.answer_tokens += sending.answer;
        self.totals.requests += 1;
        self.totals.prompt_tokens += sending.prompt as u64;
        self.totals.prefix_hit_tokens += sending.cached as u64;
    }

    /// The first token of a request that was sent at `sent`, with so many prompt tokens to compute.
    pub fn first_token(&mut self, sent: Duration, computed: usize, now: Duration) {
        self.health.succeeded(now);
        self.window.first_token(FirstToken { sent, now, computed, in_flight: self.in_flight });
        self.prompt_tokens -= computed;
        self.totals.first_tokens += 1;
        self.totals.first_token_time += now.saturating_sub(sent);
    }

    /// Tokens of a stream came.
    pub fn tokens(&mut self, came: Tokens, now: Duration) {
        self.totals.tokens += came.count as u64;
        self.answer_tokens -= came.expected;
        if came.time > Duration::ZERO {
            self.window.tokens(came.count, came.time, now);
        }
    }

    /// An attempt ended.
    pub fn ended(&mut self, attempt: Attempt, now: Duration) {
        self.in_flight -= 1;
        self.prompt_tokens -= attempt.prompt_left;
        self.answer_tokens -= attempt.answer_left;
        match attempt.ended {
            Ended::Done | Ended::Refused => self.health.succeeded(now),
            Ended::Failed => {
                self.totals.errors += 1;
                let change = self.health.failed(now);
                self.follow(change);
            }
            Ended::Busy { retry_after } => {
                self.window.busy(attempt.sent, now);
                self.health.busy(retry_after, now);
            }
            Ended::Cancelled => {}
        }
    }

    /// A request of it goes on elsewhere, after its first token or before.
    pub fn lost_request(&mut self, had_tokens: bool) {
        if had_tokens {
            self.totals.moved += 1;
        } else {
            self.totals.retries += 1;
        }
    }
}
