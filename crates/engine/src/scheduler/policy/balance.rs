//! Lengths close to those that run: evens the sequences of a batch, for executors whose step takes as long as its
//! longest sequence.

use super::{Candidate, Policy, Surroundings};

#[derive(Debug)]
pub struct Balance;

impl Policy for Balance {
    fn score(&self, candidate: &Candidate, around: &Surroundings) -> f64 {
        (candidate.len as f64 - around.mean_len).abs()
    }
}
