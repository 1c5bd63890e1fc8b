//! Short prompts first, nobody for ever last, and no client at another's expense.
//!
//! ```text
//! score = max(0, remaining - credit) + excess       (in tokens)
//! credit = CREDIT * pace * waited in every second step, else 0
//! ```
//! Shortest-remaining-first gives the least waiting on the whole, but would let a long prompt starve among short ones.
//! So waiting shortens a prompt on paper: after `remaining / (CREDIT * pace)` seconds it counts as empty and goes
//! before every newcomer: in every second step, so that old and long prompts get at least half of the machine and short
//! newcomers wait for one step of theirs, not for all of them. A client that got more tokens than its share carries the difference as a surplus: its prompts
//! go behind those of the others until they have caught up. The credit never outweighs that
//! surplus, so a flood of old requests does not buy a client more than its share.

use super::{Candidate, Policy, Surroundings};

/// Share of the machine's pace at which waiting pays. At a half, a prompt that would take `t` alone has the first word
/// in every second step after `2 t` at most.
pub const CREDIT: f64 = 0.5;

#[derive(Debug)]
pub struct Fair;

impl Policy for Fair {
    fn score(&self, candidate: &Candidate, around: &Surroundings) -> f64 {
        let credit =
            if around.seniors_first { CREDIT * around.pace * candidate.waited.as_secs_f64() } else { 0.0 };
        (candidate.remaining as f64 - credit).max(0.0) + candidate.excess
    }
}
