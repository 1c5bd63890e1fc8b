//! Short prompts first, nobody for ever last, and no client at another's expense.
//!
//! ```text
//! score = max(0, remaining - CREDIT * pace * waited) + excess       (in tokens)
//! ```
//! Shortest-remaining-first gives the least waiting on the whole, but would let a long prompt starve among short ones.
//! So waiting shortens a prompt on paper: after `remaining / (CREDIT * pace)` seconds it counts as empty and goes
//! before every newcomer. A client that got more tokens than its share carries the difference as a surplus: its prompts
//! go behind those of the others until they have caught up. The credit never outweighs that
//! surplus, so a flood of old requests does not buy a client more than its share.

use super::{Candidate, Policy, Surroundings};

/// Share of the machine's pace at which waiting pays. At a half, a prompt that would take `t` alone waits `2 t` at
/// most for prompts that came after it.
pub const CREDIT: f64 = 0.5;

#[derive(Debug)]
pub struct Fair;

impl Policy for Fair {
    fn score(&self, candidate: &Candidate, around: &Surroundings) -> f64 {
        let credit = CREDIT * around.pace * candidate.waited.as_secs_f64();
        (candidate.remaining as f64 - credit).max(0.0) + candidate.excess
    }
}
