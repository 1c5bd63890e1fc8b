//! Steps that differ only by the positions that streams add to themselves.
//!
//! ```text
//! step i takes   first + i * growth         k steps take   k * first + growth * k (k - 1) / 2
//! ```
//! Between two events of a server, thousands of steps are one span: it costs as much to simulate as one step.

use std::time::Duration;

/// Steps in a row.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// When the first of them began.
    pub began: Duration,
    /// How many they are.
    pub steps: u64,
    /// Seconds of the first.
    pub first: f64,
    /// Seconds that each takes longer than the one before.
    pub growth: f64,
}

impl Span {
    /// When its last step ends.
    pub fn ends(&self) -> Duration {
        self.began + Duration::from_secs_f64(self.seconds(self.steps))
    }

    fn seconds(&self, steps: u64) -> f64 {
        let k = steps as f64;
        k * self.first + self.growth * k * (k - 1.0) / 2.0
    }

    /// Steps that have ended by then.
    pub fn ended_by(&self, now: Duration) -> u64 {
        let passed = now.saturating_sub(self.began).as_secs_f64();
        let guess = self.inverse(passed).min(self.steps as f64) as u64;
        // The formula is right within a step; rounding to nanoseconds decides at the edges.
        let mut steps = guess.saturating_sub(1);
        while steps < self.steps && self.began + Duration::from_secs_f64(self.seconds(steps + 1)) <= now {
            steps += 1;
        }
        steps
    }

    /// Steps, with a fraction, that take so many seconds.
    fn inverse(&self, seconds: f64) -> f64 {
        let slope = self.first - self.growth / 2.0;
        if self.growth * seconds < 1e-9 * slope * slope {
            return seconds / slope;
        }
        ((slope * slope + 2.0 * self.growth * seconds).sqrt() - slope) / self.growth
    }

    /// Ends it with the step that is under way at this time.
    pub fn cut(&mut self, now: Duration) {
        self.steps = self.steps.min(self.ended_by(now) + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_takes_as_long_as_its_steps_one_by_one_and_knows_how_many_ended() {
        for growth in [0.0, 1e-12, 1e-6, 1e-3] {
            let span = Span { began: Duration::from_secs(5), steps: 3000, first: 0.01, growth };
            let mut at = 5.0;
            for step in 0..3000 {
                let seconds = 0.01 + f64::from(step) * growth;
                let middle = Duration::from_secs_f64(at + seconds / 2.0);
                assert_eq!(span.ended_by(middle), u64::from(step as u32), "{growth}");
                at += seconds;
            }
            assert!((span.ends().as_secs_f64() - at).abs() < 1e-6, "{growth}");
            assert_eq!(span.ended_by(span.ends()), 3000);
            let mut cut = span;
            cut.cut(Duration::from_secs_f64(5.015));
            assert_eq!(cut.steps, 2);
        }
    }
}
