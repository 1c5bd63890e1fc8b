//! How many drafted tokens are worth their time.
//!
//! ```text
//! step without drafts     tokens / seconds          one token per stream
//! j-th draft              chance^j / each           the tokens it adds on average, for the seconds it adds
//! ```
//! A draft is computed if it brings clearly more tokens per second ([`MARGIN`]) than the step does with the drafts before
//! it: then the whole gets faster. In a small batch a row costs little beside reading the weights, and drafts that are right one
//! time in ten pay; in a large one a row costs what it brings, and only certain ones do.

/// Most tokens drafted for a sequence in a step: more are hardly ever all right, and each of them takes a row.
pub const DEEPEST: usize = 16;

/// How much more than its time a draft has to bring. One that is just worth it brings nothing, and both what it brings and what
/// it takes are estimates.
const MARGIN: f64 = 1.2;

/// A step's expected tokens and seconds, as drafts are added to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yield {
    tokens: f64,
    seconds: f64,
}

impl Yield {
    /// A step without drafts that takes `seconds` and gives `tokens`.
    pub fn new(tokens: usize, seconds: f64) -> Self {
        Self { tokens: tokens as f64, seconds }
    }

    /// Tokens per second.
    pub fn rate(&self) -> f64 {
        self.tokens / self.seconds
    }

    /// Drafts to add for a sequence, of up to `most`: each takes `each` seconds, and is right with this chance if those
    /// before it are.
    pub fn add(&mut self, chance: f64, each: f64, most: usize) -> usize {
        let mut all_right = 1.0;
        for depth in 0..most {
            all_right *= chance;
            if all_right * self.seconds <= MARGIN * each * self.tokens {
                return depth;
            }
            self.tokens += all_right;
            self.seconds += each;
        }
        most
    }

    /// Drafts to add for several sequences at once, of up to `most` for each: one more for all of them takes `each` seconds.
    pub fn add_together(&mut self, chances: &[f64], each: f64, most: usize) -> usize {
        for depth in 0..most {
            let right: f64 = chances.iter().map(|chance| chance.powi(depth as i32 + 1)).sum();
            if right * self.seconds <= MARGIN * each * self.tokens {
                return depth;
            }
            self.tokens += right;
            self.seconds += each;
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(tokens: usize, seconds: f64, chance: f64, each: f64) -> usize {
        Yield::new(tokens, seconds).add(chance, each, DEEPEST)
    }

    #[test]
    fn one_stream_drafts_deeply_and_a_crowd_only_what_is_certain() {
        assert_eq!(depth(1, 0.005, 0.97, 0.0004), DEEPEST);
        assert_eq!(depth(1, 0.005, 0.5, 0.0004), 2);
        assert_eq!(depth(1, 0.005, 0.05, 0.0004), 0);
        assert_eq!(depth(64, 0.060, 0.93, 0.0009), 0);
        assert!(depth(64, 0.060, 0.99, 0.0007) > 2);
    }

    #[test]
    fn the_chosen_depth_gives_nearly_the_most_tokens_per_second() {
        let rate = |chance: f64, each: f64, depth: usize| {
            let tokens: f64 = (0..=depth).map(|all_right| chance.powi(all_right as i32)).sum();
            tokens / (0.005 + each * depth as f64)
        };
        for (chance, each) in [(0.3, 0.0004), (0.6, 0.001), (0.8, 0.0004), (0.9, 0.002), (0.95, 0.0005)] {
            let best = (0..=DEEPEST).map(|depth| rate(chance, each, depth)).fold(0.0, f64::max);
            let chosen = rate(chance, each, depth(1, 0.005, chance, each));
            assert!(chosen > 0.95 * best, "{chance} {each}: {chosen} of {best}");
        }
    }
}
