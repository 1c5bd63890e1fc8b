//! In order of submission: simple, and what a long prompt makes everyone else regret.

use super::{Candidate, Policy, Surroundings};

#[derive(Debug)]
pub struct Fifo;

impl Policy for Fifo {
    fn score(&self, candidate: &Candidate, _around: &Surroundings) -> f64 {
        candidate.number as f64
    }
}
