//! How many requests an upstream may have at a time.
//!
//! Given by the operator, or found: as many as it can compute without letting them wait, and not so many that a batch gains
//! nothing from one more.
//!
//! ```text
//! first = time to the first token / (OVERHEAD + prompt tokens that it had to compute)
//! pace  = time per token of a stream                                  both as ratios to their best, see `trend`
//!
//! first token, window in use, pace <= SLOW:                  window += 1                until it first shrinks,
//!                                                            window += 1/sqrt(window)   from then on
//!   and, where the upstream does not tell its queue,
//!   first <= GROW;  first > SHRINK instead:                  window *= 0.9              not below LEAST_BY_TIME
//! its own queue is longer than a step's newcomers explain:   window *= 0.8, no growth
//! it answers that it is busy:                                window *= 0.7
//! ```
//! A step takes `a + b * streams`: up to `pace = SLOW` there are `(SLOW - 1) * a / b` streams, and one more would still bring
//! a sixth of what the first one brought. That is some 400 streams on a large GPU and seventeen on a CPU. Between growing
//! and shrinking nothing happens: a busy batch takes several times as long to the first token as an empty one and is still
//! worth it. A shrink counts only if the request was sent after the one before, so that one congestion is punished
//! once. After an ejection both kinds start slowly: at one, and one more with every first token, until the window is reached.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::trend::Trend;

/// Requests before anything is known: few enough for the smallest server, and doubled with every round of first tokens.
const START: f64 = 8.0;

/// Most requests, whatever is found: more than any server computes together.
const MOST: f64 = 2048.0;

/// So many times its window an upstream bears for a while when others fail.
const BEARABLE: usize = 4;

/// What a prompt costs besides its tokens, in tokens: the step it waits for.
const OVERHEAD: f64 = 512.0;

/// Tokens that tell the pace of a stream as well as a first token tells its time.
const PACE_TOKENS: f64 = 16.0;

/// A stream may be so many times slower than at its best for the window to grow.
const SLOW: f64 = 6.0;

/// Up to here compared with the best, the window grows.
const GROW: f64 = 3.0;

/// Share of the window that is as good as all of it: no account is given more than 8 of 9 parts.
const FULL: f64 = 0.8;

/// From here on compared with the best, it shrinks.
const SHRINK: f64 = 6.0;

/// Times alone never shrink a window below this: noise must not stop an upstream.
const LEAST_BY_TIME: f64 = 4.0;

/// The upstream's queue is looked at so often at most.
const QUEUE_PAUSE: Duration = Duration::from_secs(1);

/// A first token, as the window sees it.
#[derive(Clone, Copy, Debug)]
pub struct FirstToken {
    /// When the request was sent.
    pub sent: Duration,
    /// When the token came.
    pub now: Duration,
    /// Prompt tokens that had to be computed.
    pub computed: usize,
    /// Requests at the upstream.
    pub in_flight: usize,
}

/// The limit of one upstream.
#[derive(Debug)]
pub struct Window {
    fixed: Option<NonZeroUsize>,
    /// The limit that was found.
    size: f64,
    /// The limit after a return, until it reaches the other one.
    ramp: Option<f64>,
    /// Whether it never shrank.
    is_starting: bool,
    first: Trend,
    pace: Trend,
    /// When it last shrank.
    shrunk: Option<Duration>,
    queue: OwnQueue,
}

/// The upstream's own queue when it was last looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnQueue {
    /// It does not say.
    Unknown,
    /// Nobody waits there for longer than a step.
    Short,
    /// They do.
    Long,
}

impl Window {
    /// A window that is given, or one to be found.
    pub fn new(fixed: Option<NonZeroUsize>) -> Self {
        Self {
            fixed,
            size: START,
            ramp: None,
            is_starting: true,
            first: Trend::default(),
            pace: Trend::default(),
            shrunk: None,
            queue: OwnQueue::Unknown,
        }
    }

    /// Most requests at a time, at least one.
    pub fn limit(&self) -> usize {
        let limit = self.full();
        (self.ramp.map_or(limit, |ramp| ramp.min(limit)) as usize).max(1)
    }

    /// The same where streams that were broken off elsewhere are among them: a window that was found is not a wall.
    pub fn limit_for_streams(&self) -> usize {
        if self.fixed.is_some() { self.limit() } else { BEARABLE * self.limit() }
    }

    /// The limit without a slow return.
    fn full(&self) -> f64 {
        self.fixed.map_or(self.size, |fixed| fixed.get() as f64)
    }

    /// Starts at one request again.
    pub fn restart(&mut self) {
        self.ramp = Some(1.0);
    }

    /// A first token came.
    pub fn first_token(&mut self, seen: FirstToken) {
        let was_full = seen.in_flight as f64 >= FULL * self.limit() as f64;
        self.climb();
        let time = seen.now.saturating_sub(seen.sent).as_secs_f64();
        self.first.note(time / (OVERHEAD + seen.computed as f64), 1.0, seen.now);
        let (first, is_told) = (self.first.ratio(), self.queue != OwnQueue::Unknown);
        if first > SHRINK && !is_told {
            self.shrink_by_time(seen);
        } else if (first <= GROW || is_told) && self.pace.ratio() <= SLOW {
            self.grow(was_full);
        }
    }

    /// So many more tokens of a stream came in so much time.
    pub fn tokens(&mut self, tokens: usize, time: Duration, now: Duration) {
        let tokens = tokens as f64;
        self.pace.note(time.as_secs_f64() / tokens, (tokens / PACE_TOKENS).min(1.0), now);
    }

    fn climb(&mut self) {
        let full = self.full();
        self.ramp = self.ramp.map(|ramp| ramp + 1.0).filter(|ramp| *ramp < full);
    }

    fn grow(&mut self, was_full: bool) {
        if was_full && self.queue != OwnQueue::Long && self.ramp.is_none() {
            let by = if self.is_starting { 1.0 } else { 1.0 / self.size.sqrt() };
            self.size = (self.size + by).min(MOST);
        }
    }

    fn shrink_by_time(&mut self, seen: FirstToken) {
        if self.shrunk.is_none_or(|shrunk| seen.sent > shrunk) && self.size > LEAST_BY_TIME {
            self.size = (0.9 * self.size).max(LEAST_BY_TIME);
            self.note_shrink(seen.now);
        }
    }

    fn note_shrink(&mut self, now: Duration) {
        self.shrunk = Some(now);
        self.is_starting = false;
    }

    /// A request that was sent at `sent` found the upstream too busy.
    pub fn busy(&mut self, sent: Duration, now: Duration) {
        if self.shrunk.is_none_or(|shrunk| sent > shrunk) {
            self.size = (0.7 * self.size).max(1.0);
            self.note_shrink(now);
        }
    }

    /// What the upstream says of itself.
    pub fn probed(&mut self, running: Option<usize>, waiting: Option<usize>, now: Duration) {
        let usual = 1 + running.unwrap_or(0) / 16;
        self.queue = match waiting {
            None => OwnQueue::Unknown,
            Some(waiting) if waiting <= usual => OwnQueue::Short,
            Some(_) => OwnQueue::Long,
        };
        let is_due = self.shrunk.is_none_or(|shrunk| now >= shrunk + QUEUE_PAUSE);
        if self.queue == OwnQueue::Long && is_due {
            self.size = (0.8 * self.size).max(1.0);
            self.note_shrink(now);
        }
    }
}

#[cfg(test)]
mod tests;
