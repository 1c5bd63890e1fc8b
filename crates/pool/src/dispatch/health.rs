//! Whether an upstream is given requests, by what became of the last ones and by probes.
//!
//! ```text
//!           failures in a row, or half of the recent ones            1 s, 2 s, 4 s .. 60 s later
//!    In ------------------------------------------------> Out { until } ------------------------> In, slowly
//!      \ busy: left alone for a moment (not slowly) -----/
//!    any -- probe: down --> Down -- probe: up --> In, slowly
//! ```
//! A good probe does not end an ejection: servers that fail every request often answer probes. It ends `Down`, with a clean
//! slate, because what was down and answers again was most likely restarted.
//!
//! All upstreams can be out at the same time. Requests then wait for the first to come back instead of failing one by one at
//! servers that are known to fail; their queue timeout tells the client.

use std::time::Duration;

/// Failures without a success between them that eject: one may be an accident, two a coincidence.
const IN_A_ROW: u32 = 3;

/// Share of failures that ejects, once [`ENOUGH`] outcomes are known.
const TOO_MANY: f64 = 0.5;

/// Outcomes that tell a share: fewer are covered by [`IN_A_ROW`].
const ENOUGH: f64 = 10.0;

/// Seconds after which an outcome counts 1/e.
const MEMORY: f64 = 30.0;

/// The first ejection; every further one takes twice as long.
const FIRST_EJECTION: Duration = Duration::from_secs(1);

/// The longest ejection: an upstream that comes back is used within a minute, even without probes.
const LONGEST_EJECTION: Duration = Duration::from_secs(60);

/// Successes in a row after which earlier ejections are forgiven.
const FORGIVEN: u32 = 10;

/// How long a busy upstream is left alone if it does not say.
const BREATHER: Duration = Duration::from_millis(250);

/// The longest time for which a busy upstream is left alone, whatever it says.
const LONGEST_BREATHER: Duration = Duration::from_secs(30);

/// Whether requests go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// They do.
    In,
    /// Not until then. `is_ejected` tells failures from being busy.
    Out {
        /// When it comes back.
        until: Duration,
        /// Whether it failed.
        is_ejected: bool,
    },
    /// Not until a probe says otherwise.
    Down,
}

/// What a change of health means for the upstream's other state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// It was lost: what it held is gone.
    Lost,
    /// It is back and starts slowly.
    Back,
}

/// The health of one upstream.
#[derive(Debug)]
pub struct Health {
    state: State,
    failures_in_a_row: u32,
    successes_in_a_row: u32,
    /// Ejections that are not forgiven yet.
    ejections: u32,
    recent: Recent,
}

/// Outcomes, the older the less.
#[derive(Debug, Default)]
struct Recent {
    successes: f64,
    failures: f64,
    at: Duration,
}

impl Recent {
    fn fade(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        let fades = (-passed / MEMORY).exp();
        self.successes *= fades;
        self.failures *= fades;
    }

    fn is_bad(&self) -> bool {
        let all = self.successes + self.failures;
        all >= ENOUGH && self.failures >= TOO_MANY * all
    }
}

impl Default for Health {
    fn default() -> Self {
        Self {
            state: State::In,
            failures_in_a_row: 0,
            successes_in_a_row: 0,
            ejections: 0,
            recent: Recent::default(),
        }
    }
}

impl Health {
    /// Whether requests go there.
    pub fn state(&self) -> State {
        self.state
    }

    /// When it comes back by itself.
    pub fn returns_at(&self) -> Option<Duration> {
        match self.state {
            State::Out { until, .. } => Some(until),
            State::In | State::Down => None,
        }
    }

    /// A first token or an end came as it should.
    pub fn succeeded(&mut self, now: Duration) {
        self.recent.fade(now);
        self.recent.successes += 1.0;
        self.failures_in_a_row = 0;
        self.successes_in_a_row += 1;
        if self.successes_in_a_row >= FORGIVEN {
            self.ejections = 0;
        }
    }

    /// An attempt failed. While it is out nothing more is learnt: these attempts began before.
    pub fn failed(&mut self, now: Duration) -> Change {
        self.recent.fade(now);
        self.recent.failures += 1.0;
        self.successes_in_a_row = 0;
        self.failures_in_a_row += 1;
        let is_bad = self.failures_in_a_row >= IN_A_ROW || self.recent.is_bad();
        if self.state != State::In || !is_bad {
            return Change::None;
        }
        self.eject(now)
    }

    fn eject(&mut self, now: Duration) -> Change {
        let time = FIRST_EJECTION.saturating_mul(1 << self.ejections.min(10)).min(LONGEST_EJECTION);
        self.ejections += 1;
        self.state = State::Out { until: now + time, is_ejected: true };
        self.start_counting();
        Change::Lost
    }

    fn start_counting(&mut self) {
        self.failures_in_a_row = 0;
        self.successes_in_a_row = 0;
        self.recent = Recent::default();
    }

    /// It has no room.
    pub fn busy(&mut self, retry_after: Option<Duration>, now: Duration) {
        let until = now + retry_after.unwrap_or(BREATHER).min(LONGEST_BREATHER);
        match self.state {
            State::In => self.state = State::Out { until, is_ejected: false },
            State::Out { until: earlier, is_ejected: false } => {
                self.state = State::Out { until: until.max(earlier), is_ejected: false };
            }
            State::Out { .. } | State::Down => {}
        }
    }

    /// A probe failed.
    pub fn is_down(&mut self) -> Change {
        let was_there = self.state != State::Down;
        self.state = State::Down;
        if was_there { Change::Lost } else { Change::None }
    }

    /// A probe succeeded.
    pub fn is_up(&mut self) -> Change {
        if self.state != State::Down {
            return Change::None;
        }
        self.state = State::In;
        self.ejections = 0;
        self.start_counting();
        Change::Back
    }

    /// Comes back if it is time.
    pub fn wait_is_over(&mut self, now: Duration) -> Change {
        match self.state {
            State::Out { until, is_ejected } if until <= now => {
                self.state = State::In;
                if is_ejected { Change::Back } else { Change::None }
            }
            _ => Change::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn fail_until_ejected(health: &mut Health, now: Duration) -> Duration {
        while health.failed(now) != Change::Lost {}
        health.returns_at().unwrap().checked_sub(now).unwrap()
    }

    #[test]
    fn three_failures_in_a_row_eject_and_every_ejection_takes_twice_as_long_up_to_a_minute() {
        let (mut health, mut now) = (Health::default(), at(100));
        assert_eq!([health.failed(now), health.failed(now)], [Change::None; 2]);
        health.succeeded(now);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            let time = fail_until_ejected(&mut health, now);
            assert_eq!(time, at(seconds));
            assert_eq!(health.wait_is_over(now), Change::None);
            now += time;
            assert_eq!(health.wait_is_over(now), Change::Back);
        }
        (0..FORGIVEN).for_each(|_| health.succeeded(now));
        assert_eq!(fail_until_ejected(&mut health, now), at(1));
    }

    #[test]
    fn an_upstream_that_fails_every_other_request_is_ejected_and_one_that_seldom_fails_is_not() {
        let ejected = |failing: u32| {
            let mut health = Health::default();
            (0..1000).any(|i| {
                if i % failing == 0 {
                    return health.failed(at(0)) == Change::Lost;
                }
                health.succeeded(at(0));
                false
            })
        };
        assert!(ejected(2) && !ejected(4));
    }

    #[test]
    fn failures_of_attempts_that_began_before_an_ejection_do_not_lengthen_it() {
        let mut health = Health::default();
        let time = fail_until_ejected(&mut health, at(0));
        for _ in 0..50 {
            assert_eq!(health.failed(at(0)), Change::None);
        }
        assert_eq!(health.returns_at(), Some(time));
    }

    #[test]
    fn a_failed_probe_takes_it_out_at_once_and_a_good_one_brings_it_back_but_ends_no_ejection() {
        let mut health = Health::default();
        assert_eq!([health.is_down(), health.is_down()], [Change::Lost, Change::None]);
        assert_eq!(health.wait_is_over(at(1000)), Change::None);
        assert_eq!([health.is_up(), health.is_up()], [Change::Back, Change::None]);
        fail_until_ejected(&mut health, at(0));
        assert_eq!(health.is_up(), Change::None);
        assert!(matches!(health.state(), State::Out { is_ejected: true, .. }));
    }

    #[test]
    fn a_busy_upstream_is_left_alone_for_as_long_as_it_says_within_reason() {
        let mut health = Health::default();
        health.busy(Some(at(3)), at(1));
        health.busy(None, at(1));
        assert_eq!(health.returns_at(), Some(at(4)));
        assert_eq!(health.wait_is_over(at(4)), Change::None);
        assert_eq!(health.state(), State::In);
        health.busy(Some(at(100_000)), at(4));
        assert_eq!(health.returns_at(), Some(at(4) + LONGEST_BREATHER));
    }
}
