//! What a step will do, as plain data.

use ropeway_executor::BlockId;

use crate::cost::Work;
use crate::sequence::Slot;

/// One sequence's part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Whose.
    pub slot: Slot,
    /// How many of its pending tokens are computed.
    pub tokens: usize,
    /// Rows of logits it gets: none, unless these are its last pending tokens.
    pub rows: usize,
    /// Whether these are prompt tokens (or recomputed ones) rather than the newest token of a stream.
    pub prefill: bool,
}

/// A step, decided. Kept and refilled.
#[derive(Debug, Default)]
pub struct Plan {
    /// Chunks, in batch order.
    pub chunks: Vec<Planned>,
    /// Blocks to copy before the step writes.
    pub copies: Vec<(BlockId, BlockId)>,
    /// All of it together.
    pub work: Work,
    /// Of its tokens, those of prompts.
    pub prefill_tokens: usize,
    /// Seconds it should take.
    pub predicted: f64,
    /// Seconds it was allowed to take.
    pub allowed: f64,
    /// Sequences that joined the batch.
    pub admitted: usize,
    /// Sequences that had to leave it for want of blocks.
    pub preempted: usize,
    /// Prompt tokens that the prefix cache saved.
    pub cached_tokens: usize,
}

impl Plan {
    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        let (mut chunks, mut copies) = (std::mem::take(&mut self.chunks), std::mem::take(&mut self.copies));
        chunks.clear();
        copies.clear();
        *self = Self { chunks, copies, ..Self::default() };
    }

    /// Adds a chunk that begins after `start` computed tokens.
    pub fn push(&mut self, planned: Planned, start: usize) {
        self.work = self.work.and(Work::chunk(start, planned.tokens, planned.rows));
        self.prefill_tokens += if planned.prefill { planned.tokens } else { 0 };
        self.chunks.push(planned);
    }

    /// Takes a stream's token out again; `start` is how many of its tokens are computed.
    pub fn withdraw(&mut self, slot: Slot, start: usize) {
        let Some(place) = self.chunks.iter().position(|chunk| chunk.slot == slot) else { return };
        let planned = self.chunks.remove(place);
        self.work = self.work.without(Work::chunk(start, planned.tokens, planned.rows));
        self.prefill_tokens -= if planned.prefill { planned.tokens } else { 0 };
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether `slot` is part of it.
    pub fn includes(&self, slot: Slot) -> bool {
        self.chunks.iter().any(|chunk| chunk.slot == slot)
    }
}
