//! A sequence's blocks, in the order of its positions.

use ropeway_executor::BlockId;

use super::pool::Pool;

/// The pool has no block left that nobody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBlocks;

/// A block whose content must be copied before the step writes to the copy.
pub type Copy = (BlockId, BlockId);

/// A sequence's blocks. Must be [released](BlockTable::release) before it is dropped.
#[derive(Debug, Default)]
pub struct BlockTable(Vec<BlockId>);

impl BlockTable {
    /// An empty table with room for `blocks`.
    pub fn with_capacity(blocks: usize) -> Self {
        Self(Vec::with_capacity(blocks))
    }

    /// Its blocks.
    pub fn blocks(&self) -> &[BlockId] {
        &self.0
    }

    /// Holds a block that has the next content already.
    pub fn adopt(&mut self, pool: &mut Pool, block: BlockId) {
        pool.share(block);
        self.0.push(block);
    }

    /// Holds every block that `other` holds.
    pub fn fork_from(&mut self, pool: &mut Pool, other: &BlockTable) {
        for block in &other.0 {
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
        while self.0.len() < end.div_ceil(block_tokens) {
            self.0.push(pool.take().ok_or(OutOfBlocks)?);
        }
        let first = start / block_tokens;
        let shared = self.0[first];
        if !pool.is_shared(shared) {
            return Ok(None);
        }
        let own = pool.take().ok_or(OutOfBlocks)?;
        pool.release(shared);
        self.0[first] = own;
        Ok(Some((shared, own)))
    }

    /// Gives back the blocks beyond the first `kept`.
    pub fn truncate(&mut self, pool: &mut Pool, kept: usize) {
        while self.0.len() > kept {
            let block = self.0.pop().expect("longer than what is kept");
            pool.release(block);
        }
    }

    /// How many blocks would have to be given back, from the end, for `wanted` of them to be free; `None` if all of them
    /// would not do. Blocks that others hold as well do not count.
    pub fn tail_that_frees(&self, pool: &Pool, wanted: usize) -> Option<usize> {
        let own = |block: &BlockId| !pool.is_shared(*block);
        let tail = self.0.iter().rev().enumerate().filter(|(_, block)| own(block));
        tail.map(|(index, _)| index + 1).nth(wanted.checked_sub(1)?)
    }

    /// Gives all blocks back, the last first: the end of a sequence is evicted before its beginning, which more
    /// sequences may have in common.
    pub fn release(&mut self, pool: &mut Pool) {
        self.truncate(pool, 0);
    }
}
