//! How long blocks take to come back, as far as that is known.

use std::time::Duration;

/// Bytes a second before anything was fetched: what a plain SSD gives.
const FIRST_GUESS: f64 = 0.5e9;

/// Seconds until the first block is there.
const LATENCY: f64 = 0.003;

/// Share of the estimate that a transfer leaves.
const MEMORY: f64 = 0.7;

/// What is left of the excess over the first guess each time a fetch was not worth it: a tier that was slow once is tried
/// again some day.
const FORGIVEN: f64 = 0.98;

/// What it takes to bring blocks back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loading {
    /// Seconds per block.
    each: f64,
    guess: f64,
}

impl Loading {
    /// For blocks of so many bytes.
    pub fn of(block_bytes: usize) -> Self {
        let guess = block_bytes as f64 / FIRST_GUESS;
        Self { each: guess, guess }
    }

    /// Seconds that so many blocks take.
    pub fn seconds(&self, blocks: usize) -> f64 {
        LATENCY + self.each * blocks as f64
    }

    /// So many blocks took so long.
    pub fn observe(&mut self, blocks: usize, took: Duration) {
        if blocks > 0 {
            let each = (took.as_secs_f64() - LATENCY).max(0.0) / blocks as f64;
            self.each = MEMORY * self.each + (1.0 - MEMORY) * each;
        }
    }

    /// Whether fetching so many blocks is quicker than `computing` seconds.
    pub fn is_worth(&mut self, blocks: usize, computing: f64) -> bool {
        let worth = blocks > 0 && self.seconds(blocks) < computing;
        if blocks > 0 && !worth {
            self.each = self.guess + (self.each - self.guess).max(0.0) * FORGIVEN;
        }
        worth
    }
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
}
