//! Who is here: every sequence, which of them wait and which run, and the blocks they hold.
//!
//! The moves between the states are methods here, so that a sequence outside `running` never holds a block and the
//! lists can't disagree with the sequences.

use ropeway_executor::Limits;

use crate::kv::{OutOfBlocks, Pool, table};
use crate::sequence::{Sequence, Slot};

/// All sequences, and the pool their blocks come from.
#[derive(Debug)]
pub struct Roster {
    sequences: Vec<Option<Sequence>>,
    vacant: Vec<Slot>,
    waiting: Vec<Slot>,
    running: Vec<Slot>,
    /// The blocks.
    pub pool: Pool,
    limits: Limits,
}

impl Roster {
    /// Nobody yet; room for `most` sequences without growing.
    pub fn new(limits: Limits, most: usize) -> Self {
        Self {
            sequences: Vec::with_capacity(most),
            vacant: Vec::with_capacity(most),
            waiting: Vec::with_capacity(most),
            running: Vec::with_capacity(most),
            pool: Pool::new(limits.blocks),
            limits,
        }
    }

    /// The executor's limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Sequences that have no place in the batch, in no order.
    pub fn waiting(&self) -> &[Slot] {
        &self.waiting
    }

    /// Sequences in the batch, the most urgent and oldest first.
    pub fn running(&self) -> &[Slot] {
        &self.running
    }

    /// The sequence at `slot`.
    pub fn get(&self, slot: Slot) -> &Sequence {
        self.sequences[slot.0 as usize].as_ref().expect("a live slot")
    }

    /// The sequence at `slot`.
    pub fn get_mut(&mut self, slot: Slot) -> &mut Sequence {
        self.sequences[slot.0 as usize].as_mut().expect("a live slot")
    }

    /// The sequence at `slot`, and the pool.
    pub fn get_with_pool(&mut self, slot: Slot) -> (&mut Sequence, &mut Pool) {
        (self.sequences[slot.0 as usize].as_mut().expect("a live slot"), &mut self.pool)
    }

    /// A new sequence waits.
    pub fn wait(&mut self, sequence: Sequence) -> Slot {
        let slot = self.settle(sequence);
        self.waiting.push(slot);
        slot
    }

    /// A follower joins the batch beside its leader, sharing all of the leader's blocks.
    pub fn fork(&mut self, leader: Slot, mut follower: Sequence) -> Slot {
        let (source, pool) = self.get_with_pool(leader);
        follower.table.fork_from(pool, &source.table);
        follower.computed = source.computed;
        follower.cached = source.cached;
        follower.started = source.started;
        let slot = self.settle(follower);
        self.join(slot);
        slot
    }

    /// A waiting sequence joins the batch.
    pub fn admit(&mut self, slot: Slot) {
        let place = self.waiting.iter().position(|waiting| *waiting == slot);
        self.waiting.swap_remove(place.expect("only a waiting sequence is admitted"));
        self.join(slot);
    }

    /// A waiting sequence that looked at cached blocks waits on without them.
    pub fn stay(&mut self, slot: Slot) {
        let (sequence, pool) = self.get_with_pool(slot);
        sequence.release(pool);
    }

    /// A running sequence gives up its blocks and waits again.
    pub fn preempt(&mut self, slot: Slot) {
        self.leave(slot);
        let (sequence, pool) = self.get_with_pool(slot);
        sequence.release(pool);
        sequence.preemptions += 1;
        self.waiting.push(slot);
    }

    /// What the blocks held is lost: everyone waits, to be computed anew.
    pub fn start_over(&mut self) {
        while let Some(slot) = self.running.last() {
            self.preempt(*slot);
        }
        self.pool.forget();
    }

    /// A sequence leaves for good; its blocks are free at once.
    pub fn remove(&mut self, slot: Slot) -> Sequence {
        if let Some(place) = self.waiting.iter().position(|waiting| *waiting == slot) {
            self.waiting.swap_remove(place);
        } else {
            self.leave(slot);
        }
        let mut sequence = self.sequences[slot.0 as usize].take().expect("a live slot");
        sequence.table.release(&mut self.pool);
        self.vacant.push(slot);
        sequence
    }

    /// Gives a running sequence the blocks for its next `tokens`.
    pub fn grow(&mut self, slot: Slot, tokens: usize) -> Result<Option<table::Copy>, OutOfBlocks> {
        let block_tokens = self.limits.block_tokens;
        let (sequence, pool) = self.get_with_pool(slot);
        let start = sequence.computed;
        sequence.table.prepare(pool, start, start + tokens, block_tokens)
    }

    /// Blocks that running sequences still need for tokens they know.
    pub fn owed(&self) -> usize {
        let owed = |slot: &Slot| {
            let sequence = self.get(*slot);
            let needed = sequence.blocks_needed(self.limits.block_tokens);
            needed.saturating_sub(sequence.table.blocks().len())
        };
        self.running.iter().map(owed).sum()
    }

    /// Checks what must always hold, at some expense.
    pub fn audit(&self) {
        self.pool.audit();
        for slot in &self.waiting {
            let sequence = self.get(*slot);
            assert!(sequence.table.blocks().is_empty(), "a waiting sequence holds no blocks");
            assert_eq!(sequence.computed, 0, "nothing is computed without blocks");
        }
        for slot in &self.running {
            let sequence = self.get(*slot);
            let held = sequence.table.blocks().len() * self.limits.block_tokens;
            assert!(held >= sequence.computed, "what is computed is held");
        }
        let live = self.sequences.iter().filter(|sequence| sequence.is_some()).count();
        assert_eq!(live, self.waiting.len() + self.running.len(), "everyone waits or runs");
        if live == 0 {
            assert_eq!(self.pool.counts().referenced, 0, "nobody is here, so nothing is held");
        }
    }

    fn settle(&mut self, sequence: Sequence) -> Slot {
        if let Some(slot) = self.vacant.pop() {
            self.sequences[slot.0 as usize] = Some(sequence);
            return slot;
        }
        self.sequences.push(Some(sequence));
        Slot(self.sequences.len() as u32 - 1)
    }

    fn join(&mut self, slot: Slot) {
        let rank = |slot: Slot| {
            let sequence = self.get(slot);
            (sequence.class(), sequence.ticket.number, sequence.index)
        };
        let place = self.running.partition_point(|running| rank(*running) < rank(slot));
        self.running.insert(place, slot);
    }

    fn leave(&mut self, slot: Slot) {
        let place = self.running.iter().position(|running| *running == slot);
        self.running.remove(place.expect("a sequence waits or runs"));
    }
}
