//! How long the steps of a mock executor really take.
//!
//! ```text
//! seconds = cost(work) * change * jitter * stall
//!           |            |        |        '- single steps take many times as long
//!           |            |        '- every step differs by some percent
//!           |            '- from a given time on, every step is slower or faster
//!           '- a linear cost, as the engine's own model has
//! ```
//! Changes and stalls are bound to points in time rather than to step numbers, so that two runs that differ in what
//! the engine decides meet the same disturbances. The same steps at the same times always take the same time.

use std::fmt;
use std::time::Duration;

use ropeway_engine::cost::{CostModel, Work};

use crate::rng::mix;

/// From `at` on, every step takes `factor` times as long.
#[derive(Clone, Copy, Debug)]
struct Change {
    at: Duration,
    factor: f64,
}

/// A single step takes `factor` times as long, the next one `period` after it has ended.
#[derive(Clone, Copy, Debug)]
struct Stalls {
    period: Duration,
    factor: f64,
}

/// The time that steps take.
#[derive(Clone, Debug)]
pub struct StepTime {
    cost: CostModel,
    change: Option<Change>,
    stalls: Option<Stalls>,
    /// Largest relative difference between a step and its cost.
    jitter: f64,
    /// Steps so far.
    steps: u64,
    /// When the next step stalls.
    next_stall: Duration,
}

impl From<CostModel> for StepTime {
    /// Every step takes exactly what `cost` predicts.
    fn from(cost: CostModel) -> Self {
        Self { cost, change: None, stalls: None, jitter: 0.0, steps: 0, next_stall: Duration::MAX }
    }
}

impl StepTime {
    /// From `at` on, every step takes `factor` times as long.
    pub fn changing(mut self, at: Duration, factor: f64) -> Self {
        self.change = Some(Change { at, factor });
        self
    }

    /// A step takes `factor` times as long whenever none has for `period`.
    pub fn stalling(mut self, period: Duration, factor: f64) -> Self {
        self.stalls = Some(Stalls { period, factor });
        self.next_stall = period;
        self
    }

    /// Every step takes up to `share` more or less, uniformly distributed.
    pub fn jittering(mut self, share: f64) -> Self {
        self.jitter = share;
        self
    }

    /// The cost before any change, jitter or stall.
    pub fn cost(&self) -> &CostModel {
        &self.cost
    }

    /// The largest cost of any step that does not stall.
    pub fn slowest(&self) -> CostModel {
        scaled(&self.cost, (1.0 + self.jitter) * self.change.map_or(1.0, |change| change.factor.max(1.0)))
    }

    /// When every step becomes slower or faster, if ever.
    pub fn change_at(&self) -> Option<Duration> {
        self.change.map(|change| change.at)
    }

    /// How much longer a step takes that stalls; 1 if none does.
    pub fn stall_factor(&self) -> f64 {
        self.stalls.map_or(1.0, |stalls| stalls.factor)
    }

    /// The time of the next step, which computes `work` and begins at `now`.
    pub fn next(&mut self, now: Duration, work: Work) -> Duration {
        self.steps += 1;
        let unit = (mix(self.steps) >> 11) as f64 / (1_u64 << 53) as f64;
        let jitter = 1.0 + self.jitter * (2.0 * unit - 1.0);
        let change = self.change.filter(|change| now >= change.at).map_or(1.0, |change| change.factor);
        let stall = self.stalls.filter(|_| now >= self.next_stall);
        let factor = change * jitter * stall.map_or(1.0, |stalls| stalls.factor);
        let time = Duration::from_secs_f64(self.cost.predict(work) * factor);
        if let Some(Stalls { period, .. }) = stall {
            self.next_stall = now + time + period;
        }
        time
    }
}

impl fmt::Display for StepTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seconds per step, token, row, pair and read: {:?}", self.cost.coefficients())?;
        if let Some(Change { at, factor }) = self.change {
            write!(f, ", times {factor} from {at:?} on")?;
        }
        if let Some(Stalls { period, factor }) = self.stalls {
            write!(f, ", times {factor} whenever it was not for {period:?}")?;
        }
        if self.jitter > 0.0 { write!(f, ", give or take {}", self.jitter) } else { Ok(()) }
    }
}

/// The cost of a machine that takes `factor` times as long for everything.
pub fn scaled(cost: &CostModel, factor: f64) -> CostModel {
    CostModel::known(cost.coefficients().map(|coefficient| coefficient * factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Work = Work { tokens: 10, rows: 2, pairs: 100, reads: 10 };

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn steady() -> StepTime {
        CostModel::known([0.1, 0.01, 0.0, 0.0, 0.0]).into()
    }

    #[test]
    fn a_change_holds_from_its_time_on_and_a_stall_hits_one_step_after_each_period() {
        let mut time = steady().changing(at(5.0), 2.0).stalling(at(2.0), 10.0);
        let factors = [(0.0, 1.0), (1.9, 1.0), (2.1, 10.0), (4.2, 1.0), (5.9, 2.0), (6.2, 20.0), (12.1, 2.0)];
        for (now, factor) in factors {
            let got = time.next(at(now), WORK).as_secs_f64();
            assert!((got - 0.2 * factor).abs() < 1e-9, "{got} at {now}");
        }
        assert!((time.slowest().predict(WORK) - 0.4).abs() < 1e-9);
    }

    #[test]
    fn jitter_stays_within_its_share_and_is_the_same_in_every_run() {
        let times = || {
            let mut time = steady().jittering(0.1);
            (0..100).map(move |_| time.next(at(0.0), WORK)).collect::<Vec<_>>()
        };
        assert_eq!(times(), times());
        assert!(times().iter().all(|time| (0.18..=0.22).contains(&time.as_secs_f64())));
        assert!(times().iter().any(|time| time.as_secs_f64() < 0.19));
    }
}
