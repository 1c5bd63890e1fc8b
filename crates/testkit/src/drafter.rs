//! A drafter that knows what the mock will say, and is wrong now and then.

use ropeway_engine::draft::{Drafter, Proposals, Wanted};
use ropeway_executor::Limits;

use crate::MockExecutor;
use crate::rng::Rng;

/// Drafts what [`MockExecutor`] says, each token wrong with some chance.
#[derive(Debug)]
pub struct MockDrafter {
    limits: Limits,
    /// How often a token is wrong, from 0 to 1.
    wrong: f64,
    rng: Rng,
}

impl MockDrafter {
    /// A drafter for an executor with these limits.
    pub fn new(limits: Limits, wrong: f64, seed: u64) -> Self {
        Self { limits, wrong, rng: Rng::new(seed) }
    }
}

impl Drafter for MockDrafter {
    fn draft(&mut self, wanted: &mut dyn Iterator<Item = Wanted<'_>>, proposals: &mut Proposals) {
        for Wanted { slot, sequence, most } in wanted {
            let tokens = [sequence.tokens.prompt(), sequence.tokens.answer()].concat();
            let right = MockExecutor::expected(&self.limits, &tokens, sequence.params.seed.0, most);
            let depth = self.rng.between(0, most);
            let drafts = right.into_iter().take(depth).map(|token| {
                let wrong = self.rng.chance(self.wrong);
                // Never one of the last tokens, which scenarios use to make steps fail.
                if wrong { self.rng.below(self.limits.vocab / 2) as u32 } else { token }
            });
            proposals.push(slot, drafts);
        }
    }

    fn pass(&self, _: usize) -> f64 {
        0.0
    }
}
