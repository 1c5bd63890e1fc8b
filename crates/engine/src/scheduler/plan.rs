//! What a step will do, as plain data.

use ropeway_executor::{BlockId, Class};

use crate::cost::Work;
use crate::sequence::{Sequence, Slot};

/// One sequence's part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Whose.
    pub slot: Slot,
    /// How urgent it is.
    pub class: Class,
    /// The sequence's epoch when this was planned: if it is another one later, there is nothing to advance.
    pub epoch: u32,
    /// Position of its first token.
    pub start: usize,
    /// How many tokens are computed.
    pub tokens: usize,
    /// Of these, how many are drafted, at the end.
    pub drafted: usize,
    /// Rows of logits it gets: scores, and, if these are its last pending tokens, those that choose the next.
    pub rows: usize,
    /// Whether these are prompt tokens (or recomputed ones) rather than the newest token of a stream.
    pub prefill: bool,
}

impl Planned {
    /// The next `tokens` of a sequence: none of them drafted, none of a prompt, and no rows.
    pub(super) fn of(sequence: &Sequence, slot: Slot, tokens: usize) -> Self {
        let (class, epoch, start) = (sequence.class(), sequence.epoch, sequence.start());
        Self { slot, class, epoch, start, tokens, drafted: 0, rows: 0, prefill: false }
    }

    /// Tokens that are computed for good; drafted ones come on top if they are right.
    pub fn certain(&self) -> usize {
        self.tokens - self.drafted
    }

    fn work(&self) -> Work {
        Work::chunk(self.start, self.tokens, self.rows)
    }
}

/// A step, decided. Kept and refilled.
#[derive(Debug, Default)]
pub struct Plan {
    /// Chunks, in batch order.
    pub chunks: Vec<Planned>,
    /// Blocks to copy before the step writes.
    pub copies: Vec<(BlockId, BlockId)>,
    /// Sequences whose next blocks are to be fetched; they have the memory, and no part in the step.
    pub fetches: Vec<Slot>,
    /// All of it together.
    pub work: Work,
    /// The same by class.
    pub work_of: [Work; Class::ALL.len()],
    /// The most urgent class that has a part in it.
    pub class: Class,
    /// Of its tokens, those of prompts.
    pub prefill_tokens: usize,
    /// Seconds it should take.
    pub predicted: f64,
    /// Seconds it was allowed to take.
    pub allowed: f64,
    /// Sequences that joined the batch.
    pub admitted: usize,
    /// Sequences that lost computed blocks to others.
    pub preempted: usize,
    /// Prompt tokens that the prefix cache saved.
    pub cached_tokens: usize,
}

impl Plan {
    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        let (mut chunks, mut copies) = (std::mem::take(&mut self.chunks), std::mem::take(&mut self.copies));
        let mut fetches = std::mem::take(&mut self.fetches);
        chunks.clear();
        copies.clear();
        fetches.clear();
        *self = Self { chunks, copies, fetches, class: Class::Bulk, ..Self::default() };
    }

    /// Adds a chunk.
    pub fn push(&mut self, planned: Planned) {
        self.work = self.work.and(planned.work());
        let work = &mut self.work_of[planned.class as usize];
        *work = work.and(planned.work());
        self.class = self.class.min(planned.class);
        self.prefill_tokens += if planned.prefill { planned.tokens } else { 0 };
        self.chunks.push(planned);
    }

    /// Takes a sequence's chunk out again.
    pub fn withdraw(&mut self, slot: Slot) {
        let Some(place) = self.chunks.iter().position(|chunk| chunk.slot == slot) else { return };
        let planned = self.chunks.remove(place);
        self.work = self.work.without(planned.work());
        let work = &mut self.work_of[planned.class as usize];
        *work = work.without(planned.work());
        self.prefill_tokens -= if planned.prefill { planned.tokens } else { 0 };
    }

    /// What is more urgent than `class`.
    pub fn work_before(&self, class: Class) -> Work {
        self.work_of[..class as usize].iter().fold(Work::default(), |all, work| all.and(*work))
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}
