//! A sequence's blocks, in the order of its positions.
//!
//! ```text
//! | left | left | held | held | held |      the model's windows moved on: what nobody reads any more is left
//! ```

use ropeway_executor::BlockId;

use super::pool::Pool;

/// The pool has no block left that nobody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBlocks;

/// A block whose content must be copied before the step writes to the copy.
pub type Copy = (BlockId, BlockId);

/// In place of a block that was never held. Nothing is read from or written to it, but it is a block of every pool.
const NEVER_HELD: BlockId = BlockId(0);

/// A sequence's blocks. Must be [released](BlockTable::release) before it is dropped.
#[derive(Debug, Default)]
pub struct BlockTable {
    blocks: Vec<BlockId>,
    /// How many of them, from the first on, belong to others by now.
    left: usize,
}

impl BlockTable {
    /// An empty table with room for `blocks`.
    pub fn with_capacity(blocks: usize) -> Self {
        Self { blocks: Vec::with_capacity(blocks), left: 0 }
    }

    /// A block for each place, those that were left included: nothing reads them.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// The blocks that it holds, which are its last ones.
    pub fn held(&self) -> &[BlockId] {
        &self.blocks[self.left..]
    }

    /// How many blocks at its beginning it does not hold.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Goes on at `block`, which is beyond its end; nothing will read what is before.
    pub fn skip_to(&mut self, pool: &mut Pool, block: usize) {
        debug_assert!(block >= self.blocks.len(), "only what is to come is skipped");
        self.leave(pool, block);
        self.blocks.resize(block, NEVER_HELD);
        self.left = block;
    }

    /// Gives back the blocks before `first`, which nothing reads any more.
    pub fn leave(&mut self, pool: &mut Pool, first: usize) {
        let first = first.min(self.blocks.len());
        while self.left < first {
            pool.release(self.blocks[self.left]);
            self.left += 1;
        }
    }

    /// Holds a block that has the next content already.
    pub fn adopt(&mut self, pool: &mut Pool, block: BlockId) {
        pool.share(block);
        self.blocks.push(block);
    }

    /// An empty table holds every block that `other` holds, in the same places.
    pub fn fork_from(&mut self, pool: &mut Pool, other: &BlockTable) {
        self.skip_to(pool, other.left);
        for block in other.held() {
            self.adopt(pool, *block);
        }
    }

    /// Makes the table long enough for `end` tokens, and the block of position `start` its own. On failure it keeps
    /// what it got.
    pub fn prepare(
        &mut self,
        pool: &mut Pool,
        start: usize,
        end: usize,
        block_tokens: usize,
    ) -> Result<Option<Copy>, OutOfBlocks> {
        while self.blocks.len() < end.div_ceil(block_tokens) {
            self.blocks.push(pool.take().ok_or(OutOfBlocks)?);
        }
        let first = start / block_tokens;
        let shared = self.blocks[first];
        if !pool.is_shared(shared) {
            return Ok(None);
        }
        let own = pool.take().ok_or(OutOfBlocks)?;
        pool.release(shared);
        self.blocks[first] = own;
        Ok(Some((shared, own)))
    }

    /// Gives back the blocks beyond the first `kept`.
    pub fn truncate(&mut self, pool: &mut Pool, kept: usize) {
        while self.blocks.len() > kept.max(self.left) {
            let block = self.blocks.pop().expect("longer than what is kept");
            pool.release(block);
        }
        self.blocks.truncate(kept);
        self.left = self.left.min(kept);
    }

    /// How many blocks would have to be given back, from the end, for `wanted` of them to be free; `None` if all of them
    /// would not do. Blocks that others hold as well do not count.
    pub fn tail_that_frees(&self, pool: &Pool, wanted: usize) -> Option<usize> {
        let own = |block: &BlockId| !pool.is_shared(*block);
        let tail = self.held().iter().rev().enumerate().filter(|(_, block)| own(block));
        tail.map(|(index, _)| index + 1).nth(wanted.checked_sub(1)?)
    }

    /// Gives all blocks back, the last first: the end of a sequence is evicted before its beginning, which more
    /// sequences may have in common.
    pub fn release(&mut self, pool: &mut Pool) {
        self.truncate(pool, 0);
    }
}
