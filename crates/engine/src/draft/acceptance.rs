//! How often drafted tokens are right: per sequence, lately, and for lack of that what was seen with others.
//!
//! Drafts are judged whether they were computed or not: a proposal that was not worth a row is compared with what the
//! sequence said all the same. So a drafter that was of no use for a while is noticed when it becomes useful.

use super::Confidence;

/// Share of the past that survives a judged token of a sequence: the last twenty or so count.
const MEMORY: f64 = 0.95;

/// The same for what was seen with all sequences.
const LONG_MEMORY: f64 = 0.999;

/// Judged tokens that the prior counts for.
const PRIOR_WEIGHT: f64 = 3.0;

/// Shares of right tokens before anything was judged, by confidence.
const FIRST_GUESS: [f64; Confidence::COUNT] = [0.1, 0.3, 0.5, 0.7, 0.85, 0.7];

/// Judged tokens and right ones, the older the less.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tally {
    judged: f64,
    right: f64,
}

impl Tally {
    fn judge(&mut self, right: bool, memory: f64) {
        self.judged = memory * self.judged + 1.0;
        self.right = memory * self.right + f64::from(u8::from(right));
    }

    /// The share of right ones, where `prior` counts as so many judged tokens.
    fn share(&self, prior: f64) -> f64 {
        (self.right + PRIOR_WEIGHT * prior) / (self.judged + PRIOR_WEIGHT)
    }
}

/// What was seen with one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Acceptance([Tally; Confidence::COUNT]);

/// What was seen with all sequences.
#[derive(Clone, Copy, Debug, Default)]
pub struct Experience([Tally; Confidence::COUNT]);

impl Experience {
    /// A drafted token of this confidence was judged.
    pub fn judge(&mut self, own: &mut Acceptance, confidence: Confidence, right: bool) {
        let index = confidence.index();
        self.0[index].judge(right, LONG_MEMORY);
        own.0[index].judge(right, MEMORY);
    }

    /// The chance that a drafted token of this confidence is right, if all before it were.
    pub fn chance(&self, own: &Acceptance, confidence: Confidence) -> f64 {
        let index = confidence.index();
        own.0[index].share(self.0[index].share(FIRST_GUESS[index]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_follow_what_was_seen_and_new_sequences_start_from_the_others() {
        let (mut all, mut own) = (Experience::default(), Acceptance::default());
        let high = Confidence::of_match(24);
        assert!(all.chance(&own, high) > all.chance(&own, Confidence::of_match(2)));
        for _ in 0..50 {
            all.judge(&mut own, high, false);
        }
        assert!(all.chance(&own, high) < 0.02, "{}", all.chance(&own, high));
        let newcomer = all.chance(&Acceptance::default(), high);
        assert!(newcomer < 0.1, "{newcomer}");
        for _ in 0..50 {
            all.judge(&mut own, high, true);
        }
        assert!(all.chance(&own, high) > 0.85, "{}", all.chance(&own, high));
    }
}
