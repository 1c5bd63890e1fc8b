//! What an executor can hold, and what the engine should know about it before the first step.

/// What an executor can hold; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tokens of one KV block.
    pub block_tokens: usize,
    /// Bytes of one KV block over all layers; 0 where blocks can't be exported.
    pub block_bytes: usize,
    /// KV blocks in the pool.
    pub blocks: usize,
    /// Longest sequence, in tokens, that positions and rope tables allow.
    pub context: usize,
    /// Positions back to which a token's computation reads keys and values, its own included; `None` reads all. A block of which
    /// nothing is read any more may be given to others.
    pub reach: Option<usize>,
    /// Most tokens in one step.
    pub step_tokens: usize,
    /// Most rows that ask for logits in one step.
    pub step_rows: usize,
    /// Token ids are below this.
    pub vocab: usize,
    /// Preferred sizes of a step, in tokens.
    pub sizes: StepSizes,
    /// Steps that may be launched while another one is still in flight: 0 or 1.
    pub ahead: usize,
    /// What a step costs, as far as is known before the first one.
    pub cost: CostGuess,
}

impl Limits {
    /// A small executor. Tests and examples change what matters to them.
    pub const EXAMPLE: Limits = Limits {
        block_tokens: 16,
        block_bytes: 0,
        blocks: 256,
        context: 1024,
        reach: None,
        step_tokens: 128,
        step_rows: 32,
        vocab: 1000,
        sizes: StepSizes::Multiples(6),
        ahead: 0,
        cost: CostGuess::SMALL_CPU,
    };

    /// The first block that a token at `position`, or any later one, reads.
    pub fn first_read(&self, position: usize) -> usize {
        self.reach.map_or(0, |reach| (position + 1).saturating_sub(reach) / self.block_tokens)
    }

    /// Blocks that a sequence of so many tokens needs at a time, computed a few tokens after another.
    pub fn blocks_at_once(&self, tokens: usize) -> usize {
        let all = tokens.div_ceil(self.block_tokens);
        // The reach may begin and end inside a block, and one more is being filled.
        self.reach.map_or(all, |reach| all.min(reach.div_ceil(self.block_tokens) + 2))
    }
}

/// Preferred sizes of a step, in tokens: matrix products compute so many at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepSizes {
    /// Multiples of so many tokens. A step of another size costs a little more per token.
    Multiples(usize),
    /// These, ascending, and multiples of the last one. A step of another size costs as much as one of the next listed size.
    Listed(&'static [usize]),
}

impl StepSizes {
    /// The smallest size of more than so many tokens.
    pub fn above(self, tokens: usize) -> usize {
        match self {
            Self::Multiples(tile) => (tokens / tile + 1) * tile,
            Self::Listed(sizes) => match sizes.iter().find(|size| **size > tokens) {
                Some(size) => *size,
                None => Self::Multiples(sizes.last().copied().unwrap_or(1)).above(tokens),
            },
        }
    }

    /// Tokens whose products are computed in a step that asks for so many.
    pub fn computed(self, tokens: usize) -> usize {
        match self {
            Self::Listed(_) if tokens > 0 => self.above(tokens - 1),
            Self::Listed(_) | Self::Multiples(_) => tokens,
        }
    }

    /// The largest size of at most so many tokens; 0 where all are larger.
    pub fn up_to(self, tokens: usize) -> usize {
        match self {
            Self::Multiples(tile) => tokens / tile * tile,
            Self::Listed(sizes) if sizes.last().is_some_and(|last| *last <= tokens) => {
                Self::Multiples(sizes[sizes.len() - 1]).up_to(tokens)
            }
            Self::Listed(sizes) => sizes.iter().rev().find(|size| **size <= tokens).copied().unwrap_or(0),
        }
    }
}

/// What a step is expected to cost before any was measured, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostGuess {
    /// Per step: reading the weights, and everything else that happens once.
    pub step: u64,
    /// Per token: the layers' products.
    pub token: u64,
    /// Per row of logits: vocabulary head and sampling.
    pub row: u64,
    /// Per pair of a token and a position that it attends to.
    pub pair: u64,
    /// Per position whose keys and values are read, once for each chunk that attends to it.
    pub read: u64,
}

impl CostGuess {
    /// A model of 100 million parameters on two cores.
    pub const SMALL_CPU: CostGuess = CostGuess {
        step: 5_000_000_000,
        token: 700_000_000,
        row: 300_000_000,
        pair: 150_000,
        read: 1_500_000,
    };

    /// In seconds: per step, per token, per row, per pair and per read position.
    pub fn coefficients(self) -> [f64; 5] {
        let Self { step, token, row, pair, read } = self;
        [step, token, row, pair, read].map(|picoseconds| picoseconds as f64 * 1e-12)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_tokens_lies_between_two_sizes() {
        for sizes in [StepSizes::Multiples(6), StepSizes::Listed(&[8, 16, 48, 64])] {
            for tokens in 0..200 {
                let (lower, upper) = (sizes.up_to(tokens), sizes.above(tokens));
                assert!(lower <= tokens && tokens < upper, "{sizes:?}: {lower} {tokens} {upper}");
                assert_eq!(sizes.above(lower), upper, "{sizes:?}: no size lies between {lower} and {upper}");
            }
        }
        let listed = StepSizes::Listed(&[8, 16, 48, 64]);
        assert_eq!([listed.up_to(47), listed.above(47), listed.above(64)], [16, 48, 128]);
    }

    #[test]
    fn a_listed_size_is_computed_whole_and_a_tile_is_not() {
        let listed = StepSizes::Listed(&[8, 16, 48, 64]);
        assert_eq!([0, 1, 8, 17, 64, 65].map(|tokens| listed.computed(tokens)), [0, 8, 8, 48, 64, 128]);
        assert_eq!([0, 1, 6, 7].map(|tokens| StepSizes::Multiples(6).computed(tokens)), [0, 1, 6, 7]);
    }
}
