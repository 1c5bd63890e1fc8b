//! A drafter that knows what the mock will say, and is wrong now and then.

use ropeway_engine::Drafter;
use ropeway_engine::sequence::Sequence;

use crate::MockExecutor;
use crate::rng::Rng;

/// Drafts what [`MockExecutor`] says, each token wrong with some chance.
#[derive(Debug)]
pub struct MockDrafter {
    vocab: usize,
    /// How often a token is wrong, from 0 to 1.
    wrong: f64,
    rng: Rng,
}

impl MockDrafter {
    /// A drafter for a vocabulary of so many tokens.
    pub fn new(vocab: usize, wrong: f64, seed: u64) -> Self {
        Self { vocab, wrong, rng: Rng::new(seed) }
    }
}

impl Drafter for MockDrafter {
    fn draft(&mut self, sequence: &Sequence, most: usize, drafts: &mut Vec<u32>) {
        let tokens = [sequence.tokens.prompt(), sequence.tokens.answer()].concat();
        let right = MockExecutor::expected(self.vocab, &tokens, sequence.params.seed.0, most);
        let depth = self.rng.between(0, most);
        for token in right.into_iter().take(depth) {
            let wrong = self.rng.chance(self.wrong);
            // Never one of the last tokens, which scenarios use to make steps fail.
            drafts.push(if wrong { self.rng.below(self.vocab / 2) as u32 } else { token });
        }
    }
}
