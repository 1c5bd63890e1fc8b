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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fixed(limit: usize) -> Window {
        Window::new(NonZeroUsize::new(limit))
    }

    /// First tokens of a full window, whose times are `time(window)` seconds, one every 10 ms.
    fn run(window: &mut Window, rounds: u64, mut time: impl FnMut(usize) -> f64) {
        let begin = window.shrunk.unwrap_or(Duration::ZERO);
        for round in 1..=rounds {
            let sent = begin + Duration::from_millis(10 * round);
            let in_flight = window.limit();
            let now = sent + Duration::from_secs_f64(time(in_flight));
            window.first_token(FirstToken { sent, now, computed: 512, in_flight });
        }
    }

    /// A server that computes `room` requests together and lets more wait.
    fn server(room: usize) -> impl Fn(usize) -> f64 {
        move |in_flight| {
            let busy = 1.0 + in_flight.min(room) as f64 / room as f64;
            let waits = 0.5 * in_flight.saturating_sub(room) as f64;
            0.02 * (busy + waits)
        }
    }

    #[test]
    fn a_given_limit_stays_but_for_a_slow_return() {
        let mut window = fixed(5);
        run(&mut window, 50, |_| 1.0);
        window.busy(Duration::from_secs(9), Duration::from_secs(10));
        assert_eq!(window.limit(), 5);
        window.restart();
        let limits: Vec<_> = (0..6)
            .map(|_| {
                let limit = window.limit();
                run(&mut window, 1, |_| 1.0);
                limit
            })
            .collect();
        assert_eq!(limits, [1, 2, 3, 4, 5, 5]);
    }

    #[test]
    fn it_finds_about_what_a_server_can_do_and_stays_there() {
        let mut window = Window::new(None);
        run(&mut window, 3000, server(64));
        let found = window.limit();
        assert!((64..=128).contains(&found), "{found}");
        run(&mut window, 3000, server(64));
        assert!(window.limit().abs_diff(found) < 32, "{found}, then {}", window.limit());
    }

    #[test]
    fn it_does_not_grow_while_it_is_not_needed() {
        let mut window = Window::new(None);
        let seen =
            FirstToken { sent: Duration::ZERO, now: Duration::from_millis(20), computed: 100, in_flight: 3 };
        (0..100).for_each(|_| window.first_token(seen));
        assert_eq!(window.limit(), START as usize);
    }

    #[test]
    fn a_server_that_became_slow_is_given_less_and_gets_more_again_when_it_recovers() {
        let mut window = Window::new(None);
        run(&mut window, 500, server(64));
        let before = window.limit();
        run(&mut window, 2000, |in_flight| 20.0 * server(64)(in_flight));
        let slow = window.limit();
        assert!(slow < before / 2, "{before}, then {slow}");
        run(&mut window, 3000, server(64));
        assert!(window.limit() > 2 * slow, "{slow}, then {}", window.limit());
    }

    #[test]
    fn a_queue_at_the_upstream_shrinks_it_once_a_second_and_a_short_one_does_not() {
        let mut window = Window::new(None);
        run(&mut window, 200, |_| 0.02);
        let before = window.limit();
        window.probed(Some(64), Some(5), Duration::from_secs(100));
        assert_eq!(window.limit(), before);
        for millis in [0, 200, 900] {
            window.probed(Some(64), Some(6), Duration::from_millis(100_000 + millis));
        }
        assert_eq!(window.limit(), before * 8 / 10);
    }

    #[test]
    fn an_upstream_that_says_that_nobody_waits_is_believed_more_than_times() {
        let mut window = Window::new(None);
        run(&mut window, 100, |_| 0.02);
        window.probed(Some(64), Some(0), Duration::from_secs(1));
        let before = window.limit();
        run(&mut window, 200, |_| 0.2);
        let grown = window.limit();
        assert!(grown > before, "{before}, then {grown}");
        window.probed(Some(64), None, Duration::from_secs(10));
        run(&mut window, 200, |_| 0.2);
        assert!(window.limit() < grown, "{grown}, then {}", window.limit());
    }

    #[test]
    fn it_stops_growing_where_one_more_stream_brings_little() {
        let found = |per_stream: f64| {
            let mut window = Window::new(None);
            window.probed(Some(1), Some(0), Duration::ZERO);
            for round in 0..20_000 {
                let in_flight = window.limit();
                // Requests come one by one in the beginning, as they do.
                let streams = in_flight.min(1 + round / 32);
                let step = Duration::from_secs_f64(4.6e-3 + per_stream * streams as f64);
                window.tokens(64, 64 * step, Duration::ZERO);
                let sent = Duration::ZERO;
                window.first_token(FirstToken { sent, now: step, computed: 100, in_flight: streams });
            }
            window.limit()
        };
        let [gpu, cpu] = [6e-5, 1.4e-3].map(found);
        assert!((300..600).contains(&gpu) && (8..32).contains(&cpu), "{gpu}, {cpu}");
    }

    #[test]
    fn many_busy_answers_at_once_shrink_it_once() {
        let mut window = Window::new(None);
        (0..100).for_each(|_| window.busy(Duration::from_secs(1), Duration::from_secs(2)));
        assert_eq!(window.limit(), 5);
        for second in 3..100 {
            window.busy(Duration::from_secs(second), Duration::from_secs(second));
        }
        assert_eq!(window.limit(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Times of a server with room for everything that scatter over more than a factor of ten.
        #[test]
        fn noise_does_not_make_it_collapse(seed in any::<u64>()) {
            let mut state = seed;
            let noise = move |_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let unit = (state >> 11) as f64 / (1_u64 << 53) as f64;
                0.02 * (-(1.0 - unit).ln() + 0.1)
            };
            let mut window = Window::new(None);
            run(&mut window, 4000, noise);
            prop_assert!(window.limit() >= 64, "{}", window.limit());
        }
    }
}
