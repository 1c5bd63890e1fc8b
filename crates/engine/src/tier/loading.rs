//! How long blocks take to come back, as far as that is known.
//!
//! A tier is tried before it is judged: until something came from it, it is taken to be very fast. Then its transfers tell, and
//! what is believed drifts back towards the fastest one, or towards a usual disk's speed, each time a fetch was not worth it, so that a tier that was slow is
//! tried again some day.

use std::time::Duration;

/// Bytes a second before anything was fetched: more than most disks give. Computing a prompt on a large machine competes with
/// several gigabytes a second, so that with a usual disk's speed in mind the first fetch would never be tried.
const FIRST_GUESS: f64 = 16e9;

/// Bytes a second of a plain SSD: a tier may have been slower every time so far, and is still tried again.
const USUAL: f64 = 0.5e9;

/// Seconds until the first block is there.
const LATENCY: f64 = 0.003;

/// Share of the estimate that a transfer leaves.
const MEMORY: f64 = 0.7;

/// What is left of the excess over the fastest transfer each time a fetch was not worth it. Planning a step looks at several
/// prompts, so that this takes some seconds.
const FORGIVEN: f64 = 0.995;

/// What it takes to bring blocks back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loading {
    /// Seconds per block.
    each: f64,
    /// The least that a transfer took per block, or what a usual disk takes.
    fastest: f64,
    /// Whether nothing came so far.
    is_guess: bool,
}

impl Loading {
    /// For blocks of so many bytes.
    pub fn of(block_bytes: usize) -> Self {
        let [guess, usual] = [FIRST_GUESS, USUAL].map(|speed| block_bytes as f64 / speed);
        Self { each: guess, fastest: usual, is_guess: true }
    }

    /// Seconds that so many blocks take.
    pub fn seconds(&self, blocks: usize) -> f64 {
        LATENCY + self.each * blocks as f64
    }

    /// So many blocks took so long, or less: they were there when they were first looked for, after a step.
    pub fn observe_at_most(&mut self, blocks: usize, took: Duration) {
        if blocks > 0 && each(blocks, took) < self.each {
            self.observe(blocks, took);
        }
    }

    /// So many blocks took so long.
    pub fn observe(&mut self, blocks: usize, took: Duration) {
        if blocks == 0 {
            return;
        }
        let each = each(blocks, took);
        let memory = if std::mem::take(&mut self.is_guess) { 0.0 } else { MEMORY };
        self.each = memory * self.each + (1.0 - memory) * each;
        self.fastest = self.fastest.min(each);
    }

    /// Whether fetching so many blocks is quicker than `computing` seconds.
    pub fn is_worth(&mut self, blocks: usize, computing: f64) -> bool {
        let worth = blocks > 0 && self.seconds(blocks) < computing;
        if blocks > 0 && !worth {
            self.each = self.each.min(self.fastest + (self.each - self.fastest) * FORGIVEN);
        }
        worth
    }
}

/// Seconds per block.
fn each(blocks: usize, took: Duration) -> f64 {
    (took.as_secs_f64() - LATENCY).max(0.0) / blocks as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_that_was_slow_is_avoided_and_tried_again_some_day() {
        let mut loading = Loading::of(1 << 20);
        assert!(loading.is_worth(10, 0.5));
        for _ in 0..10 {
            loading.observe(10, Duration::from_secs(10));
        }
        assert!(!loading.is_worth(10, 0.5));
        assert!((0..1000).any(|_| loading.is_worth(10, 0.5)));
    }

    #[test]
    fn a_fast_machine_tries_a_tier_once_and_then_knows_it() {
        let (block_bytes, computing) = (64 << 20, 0.011);
        for (speed, worth) in [(1e9, false), (20e9, true)] {
            let mut loading = Loading::of(block_bytes);
            assert!(loading.is_worth(20, 20.0 * computing), "nothing is known against it");
            loading.observe(20, Duration::from_secs_f64(20.0 * block_bytes as f64 / speed));
            assert_eq!(loading.is_worth(20, 20.0 * computing), worth);
        }
    }

    #[test]
    fn what_came_during_a_long_step_does_not_make_the_tier_look_slow() {
        let mut loading = Loading::of(1 << 20);
        loading.observe(10, Duration::from_millis(20));
        let before = loading;
        loading.observe_at_most(10, Duration::from_millis(500));
        assert_eq!(loading, before);
        loading.observe_at_most(10, Duration::from_millis(10));
        assert!(loading.seconds(10) < before.seconds(10));
    }

    #[test]
    fn a_fetch_that_is_not_worth_it_does_not_make_the_tier_look_slower() {
        let mut loading = Loading::of(1 << 20);
        loading.observe(10, Duration::from_millis(5));
        let before = loading.seconds(100);
        assert!(!loading.is_worth(1, 0.001));
        assert!(loading.seconds(100) <= before);
    }
}
