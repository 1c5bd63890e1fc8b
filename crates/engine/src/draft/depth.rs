//! How many drafted tokens are worth their time.
//!
//! ```text
//! a step now          tokens / seconds                       what the machine gives without this draft
//! the j-th draft      chance^j / (row + price)               tokens that it adds on average, for the time that it adds
//! ```
//! A draft is computed while it gives more tokens per second than the step as a whole: then the whole gets faster with
//! it. In a small batch a row costs next to nothing beside reading the weights, and drafts that are right one time in
//! ten pay; in a large one a row costs as much as it brings, and only certain ones do.

/// Most tokens drafted for a sequence in a step: more are hardly ever all right, and each of them takes a row.
pub const DEEPEST: usize = 16;

/// What the step's drafts are weighed against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth {
    /// Least chance that a draft has to be right to be worth its row, this token and all before it taken together.
    pub least: f64,
}

impl Worth {
    /// For a step of so many tokens in `seconds`, where one drafted token more takes `each` seconds.
    pub fn new(tokens: usize, seconds: f64, each: f64) -> Self {
        Self { least: each * tokens as f64 / seconds.max(1e-9) }
    }

    /// Nothing is worth it.
    pub const NOTHING: Self = Self { least: f64::INFINITY };

    /// Drafts to compute of up to `most`, each right with this chance if those before it are.
    pub fn depth(self, chance: f64, most: usize) -> usize {
        let all_right = std::iter::successors(Some(chance), |right| Some(right * chance));
        all_right.take(most).take_while(|right| *right > self.least).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stream_drafts_deeply_and_a_crowd_only_what_is_certain() {
        let alone = Worth::new(1, 0.005, 0.0004);
        assert_eq!(alone.depth(0.9, DEEPEST), DEEPEST);
        assert_eq!(alone.depth(0.5, DEEPEST), 3);
        assert_eq!(alone.depth(0.05, DEEPEST), 0);
        let crowd = Worth::new(64, 0.060, 0.0009);
        assert_eq!(crowd.depth(0.95, DEEPEST), 0);
        assert_eq!(crowd.depth(0.99, DEEPEST), 4);
        assert_eq!(Worth::NOTHING.depth(1.0, DEEPEST), 0);
    }
}
