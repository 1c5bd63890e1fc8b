//! Fewest remaining tokens first: the least mean waiting, and no bound on the longest.

use super::{Candidate, Policy, Surroundings};

#[derive(Debug)]
pub struct Shortest;

impl Policy for Shortest {
    fn score(&self, candidate: &Candidate, _around: &Surroundings) -> f64 {
        candidate.remaining as f64
    }
}
