//! A drafter that is right as often as it is told, for the texts of [`TimedExecutor`](super::TimedExecutor).
//!
//! Prompt lookup finds nothing in those texts, so that all drafts are this drafter's. How many it is asked for is the
//! engine's own choice.

use ropeway_engine::draft::{Drafter, Proposals, Wanted};

use super::timed::next_token;
use crate::rng::Rng;

/// The drafter. What it proposes takes no time but that of the drafted rows.
#[derive(Debug)]
pub struct SimulatedDrafter {
    vocab: usize,
    /// How often a token is right if those before it are, from 0 to 1.
    acceptance: f64,
    rng: Rng,
}

impl SimulatedDrafter {
    /// A drafter for a vocabulary of so many tokens.
    pub fn new(vocab: usize, acceptance: f64) -> Self {
        Self { vocab, acceptance, rng: Rng::new(0) }
    }
}

impl Drafter for SimulatedDrafter {
    fn draft(&mut self, wanted: &mut dyn Iterator<Item = Wanted<'_>>, proposals: &mut Proposals) {
        for Wanted { slot, sequence, most } in wanted {
            let known = sequence.tokens.len();
            let mut token = sequence.tokens.get(known - 1);
            let drafts = (known..known + most).map(|position| {
                let right = next_token(token, position as u64, self.vocab);
                // A wrong token leads to another text: those behind it are wrong as well.
                token = if self.rng.chance(self.acceptance) { right } else { right ^ 1 };
                token
            });
            proposals.push(slot, drafts);
        }
    }

    fn pass(&self, _: usize) -> f64 {
        0.0
    }
}
