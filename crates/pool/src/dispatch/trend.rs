//! How a time compares with the best it was lately.
//!
//! ```text
//! recent   = mean of the last 16 samples or so, each counted as OUTLIER * recent at most
//! best     = least value of `recent` in the last 10 to 20 minutes
//! ratio    = recent / best
//! ```

use std::time::Duration;

/// Share of a whole sample in the recent mean.
const GAIN: f64 = 1.0 / 16.0;

/// Samples before the recent mean means anything.
const ENOUGH: f64 = 16.0;

/// A sample counts as so many times the mean at most.
const OUTLIER: f64 = 4.0;

/// After so long the best is sought anew: the machine may have become slower.
const SEEK_AGAIN: Duration = Duration::from_secs(600);

/// A time, recently and at its best.
#[derive(Debug)]
pub struct Trend {
    recent: f64,
    /// Samples so far.
    samples: f64,
    /// The least values of this period and of the one before.
    best: [f64; 2],
    since: Duration,
}

impl Default for Trend {
    fn default() -> Self {
        Self { recent: 0.0, samples: 0.0, best: [f64::INFINITY; 2], since: Duration::ZERO }
    }
}

impl Trend {
    /// Counts a sample, or a part of one.
    pub fn note(&mut self, sample: f64, part: f64, now: Duration) {
        if self.samples <= 0.0 {
            self.recent = sample;
        }
        self.samples += part;
        // The first samples count more, so that the very first is not believed for long.
        let gain = part * GAIN.max(1.0 / self.samples.max(1.0));
        self.recent += gain * (sample.min(OUTLIER * self.recent) - self.recent);
        if self.samples >= ENOUGH {
            self.note_best(now);
        }
    }

    fn note_best(&mut self, now: Duration) {
        if now.saturating_sub(self.since) >= SEEK_AGAIN {
            self.best = [f64::INFINITY, self.best[0]];
            self.since = now;
        }
        self.best[0] = self.best[0].min(self.recent);
    }

    /// How many times the best it is now; 1 until enough is known.
    pub fn ratio(&self) -> f64 {
        let best = self.best[0].min(self.best[1]);
        if best.is_finite() && best > 0.0 { self.recent / best } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(samples: &[(f64, usize)]) -> f64 {
        let mut trend = Trend::default();
        for (sample, times) in samples {
            (0..*times).for_each(|_| trend.note(*sample, 1.0, Duration::ZERO));
        }
        trend.ratio()
    }

    #[test]
    fn a_time_that_doubles_has_a_ratio_of_two_and_one_outlier_changes_little() {
        assert!((after(&[(1.0, 50), (2.0, 200)]) - 2.0).abs() < 0.01);
        assert!(after(&[(1.0, 50), (1000.0, 1)]) < 1.3);
        assert!((after(&[(0.01, 1), (1.0, 10)]) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_best_is_sought_anew_after_a_while() {
        let mut trend = Trend::default();
        (0..50).for_each(|_| trend.note(1.0, 1.0, Duration::ZERO));
        for period in 1..=3 {
            (0..200).for_each(|_| trend.note(3.0, 1.0, SEEK_AGAIN * period));
        }
        assert!((trend.ratio() - 1.0).abs() < 0.01, "{}", trend.ratio());
    }
}
