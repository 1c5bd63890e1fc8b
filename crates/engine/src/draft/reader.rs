//! What a draft model has read of one sequence, and the blocks that hold it.

use ropeway_executor::{Batch, Limits};

use crate::kv::{BlockTable, Pool};
use crate::sequence::Sequence;

/// What the model has read of one sequence.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) life: u32,
    pub(super) table: BlockTable,
    /// Tokens whose keys and values exist.
    pub(super) computed: usize,
    /// Of these, the last ones that were drafted and may turn out wrong.
    pub(super) drafts: Vec<u32>,
    /// Full blocks that have their name.
    named: usize,
}

impl Reader {
    /// Keeps what was said of what was read, names the blocks that it filled, and takes over blocks that others filled.
    pub(super) fn settle(&mut self, sequence: &Sequence, pool: &mut Pool, block_tokens: usize) {
        let tokens = &sequence.tokens;
        // The last draft was never read.
        let read = self.drafts.len().saturating_sub(1).min(self.computed);
        let first = self.computed - read;
        let right = (first..tokens.len())
            .zip(&self.drafts[..read])
            .take_while(|(at, draft)| tokens.get(*at) == **draft);
        self.computed = first + right.count();
        self.drafts.clear();
        self.table.truncate(pool, self.computed.div_ceil(block_tokens));
        while (self.named + 1) * block_tokens <= self.computed {
            let Some(hash) = sequence.chain.get(self.named) else { break };
            pool.register(self.table.blocks()[self.named], hash);
            self.named += 1;
        }
        while self.computed == self.named * block_tokens && self.computed + block_tokens < tokens.len() {
            let Some(block) = sequence.chain.get(self.named).and_then(|hash| pool.find(hash)) else { break };
            self.table.truncate(pool, self.named);
            self.table.adopt(pool, block);
            self.named += 1;
            self.computed += block_tokens;
        }
    }

    /// Holds blocks for `end` tokens; what has to be copied first is added to the batch.
    pub(super) fn hold(&mut self, pool: &mut Pool, end: usize, limits: &Limits, batch: &mut Batch) -> bool {
        let prepared = self.table.prepare(pool, self.computed, end, limits.block_tokens);
        if let Ok(copy) = prepared {
            batch.copies.extend(copy);
        } else {
            self.table.truncate(pool, self.computed.div_ceil(limits.block_tokens));
        }
        prepared.is_ok()
    }

    pub(super) fn release(&mut self, pool: &mut Pool) {
        self.table.release(pool);
        (self.computed, self.named) = (0, 0);
        self.drafts.clear();
    }
}
