//! A sequence's blocks: found, fetched, filled, left behind and given up.
//!
//! ```text
//! adopt_cached   blocks that memory has already
//! land_fetched   blocks that came from a lower tier
//! advance        blocks that were computed; those that nothing reads any more are left
//! shrink         blocks that others need more
//! ```

use std::ops::Range;

use ropeway_executor::Limits;

use super::Sequence;
use crate::kv::{BlockHash, Pool};

/// How often a sequence waits for a lower tier in vain before it relies on computing.
const MOST_FETCH_FAILURES: u32 = 2;

impl Sequence {
    /// Blocks that it still needs for tokens it knows.
    pub fn owed(&self, limits: &Limits) -> usize {
        let more = self.len().div_ceil(limits.block_tokens).saturating_sub(self.table.blocks().len());
        more.min(limits.blocks_at_once(self.len()).saturating_sub(self.table.held().len()))
    }

    /// Takes over cached blocks for what comes next, as far as there are any; the last token is always computed, for
    /// its logits are wanted. Returns the tokens gained.
    pub fn adopt_cached(&mut self, pool: &mut Pool, limits: &Limits) -> usize {
        let (before, block_tokens) = (self.computed, limits.block_tokens);
        if self.flying > 0 || self.table.blocks().len() * block_tokens != self.computed {
            return 0;
        }
        let found = self.found(limits, |hash| pool.find(hash).is_some());
        self.skip_to(found.start, pool, block_tokens);
        for block in found {
            let cached = self.chain.get(block).and_then(|hash| pool.find(hash));
            self.table.adopt(pool, cached.expect("it was just found"));
            self.computed += block_tokens;
        }
        self.charged = self.charged.max(self.computed);
        self.computed - before
    }

    /// Goes on at `block` as if everything before it were computed, which nothing reads any more.
    pub fn skip_to(&mut self, block: usize, pool: &mut Pool, block_tokens: usize) {
        if block > self.table.blocks().len() {
            self.table.skip_to(pool, block);
            self.computed = block * block_tokens;
        }
    }

    /// Blocks after what is computed that are there, as `holds` says, as far as they are of use: those that are read when
    /// everything before the last one's end counts as computed.
    pub fn found(&self, limits: &Limits, holds: impl Fn(BlockHash) -> bool) -> Range<usize> {
        let first = self.computed / limits.block_tokens;
        let is_held = |block: usize| self.chain.get(block).is_some_and(&holds);
        let (mut held_from, mut found) = (self.table.left(), first..first);
        for block in first..self.reusable(limits) {
            if !is_held(block) {
                // Without a reach everything before it is read. With one, what comes later may do without it.
                if limits.reach.is_none() {
                    break;
                }
                held_from = block + 1;
                continue;
            }
            let read = limits.first_read((block + 1) * limits.block_tokens);
            if held_from <= read {
                found = read.max(first)..block + 1;
            }
        }
        found
    }

    /// Blocks of its tokens that need not be computed if they are found.
    fn reusable(&self, limits: &Limits) -> usize {
        // A score needs the logits of the token before, and these are not cached.
        let told = if self.score.is_some() { self.told } else { usize::MAX };
        // The last token is always computed, for its logits are wanted.
        told.min(self.tokens.len() - 1) / limits.block_tokens
    }

    /// Whether it has all keys and values that its next token reads.
    fn sees_enough(&self, limits: &Limits) -> bool {
        self.table.left() <= limits.first_read(self.computed)
    }

    /// Whether blocks of it can come from a lower tier now: nothing of it is being computed, and it has no rows that need more
    /// than keys and values.
    pub fn may_fetch(&self, block_tokens: usize) -> bool {
        let is_still = self.flying == 0 && self.in_flight.is_none() && self.fetching.is_none();
        let is_whole = self.table.blocks().len() * block_tokens == self.computed;
        is_still && is_whole && self.score.is_none() && self.fetch_failures < MOST_FETCH_FAILURES
    }

    /// A block of it came from a lower tier, and is in its place. Nobody is charged for it.
    pub fn land_fetched(&mut self, pool: &mut Pool, limits: &Limits) {
        let block_tokens = limits.block_tokens;
        self.advance(block_tokens, pool, limits);
        self.charged = self.charged.max(self.computed);
        if self.epoch == 0 {
            self.cached += block_tokens;
            self.fetched += block_tokens;
        }
    }

    /// Nothing more comes from a lower tier; blocks that were set aside for it are given back. Without all that its next
    /// token reads, those that came are of no use.
    pub fn end_fetch(&mut self, pool: &mut Pool, limits: &Limits) {
        self.fetching = None;
        if !self.sees_enough(limits) {
            self.computed = 0;
            if self.epoch == 0 {
                (self.cached, self.fetched) = (0, 0);
            }
        }
        self.trim(pool, limits.block_tokens);
    }

    /// Counts `tokens` more as computed, names the blocks that became full, and leaves those that nothing reads any more.
    pub fn advance(&mut self, tokens: usize, pool: &mut Pool, limits: &Limits) {
        let block_tokens = limits.block_tokens;
        let full = self.computed / block_tokens;
        self.computed += tokens;
        self.progressed = true;
        self.guidance.advance(self.tokens.len().saturating_sub(self.computed));
        self.chain.extend(&self.tokens);
        for block in full..self.computed / block_tokens {
            if let Some(hash) = self.chain.get(block) {
                pool.register(self.table.blocks()[block], hash);
            }
        }
        self.table.leave(pool, limits.first_read(self.computed));
    }

    /// Takes its blocks out of the prefix cache: what is in them is not to be trusted.
    pub fn distrust(&self, pool: &mut Pool) {
        self.table.held().iter().for_each(|block| pool.unname(*block));
        let left = (0..self.table.left()).filter_map(|block| self.chain.get(block));
        left.for_each(|hash| pool.discredit(hash));
    }

    /// Of `kept` blocks that it could keep, those that are of use: none where it would have to compute again what reads
    /// blocks that it left.
    pub fn keepable(&self, kept: usize, limits: &Limits) -> usize {
        let computed = self.computed.min(kept * limits.block_tokens);
        if self.table.left() <= limits.first_read(computed) { kept } else { 0 }
    }

    /// Gives up its blocks beyond the first `kept`, and what they held. Whether that interrupts it, and not only takes more
    /// from what was interrupted before.
    pub fn shrink(&mut self, kept: usize, pool: &mut Pool, limits: &Limits) -> bool {
        let kept = self.keepable(kept, limits);
        self.table.truncate(pool, kept);
        self.computed = self.computed.min(kept * limits.block_tokens);
        (self.flying, self.fetching) = (0, None);
        self.epoch += 1;
        let interrupted = std::mem::take(&mut self.progressed);
        self.preemptions += u32::from(interrupted);
        interrupted
    }

    /// Gives back blocks that hold nothing computed: what drafts needed, when they were wrong.
    pub fn trim(&mut self, pool: &mut Pool, block_tokens: usize) {
        self.table.truncate(pool, self.start().div_ceil(block_tokens));
    }
}
