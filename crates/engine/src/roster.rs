//! Who is here: every sequence, which of them wait and which run, and the blocks they hold.
//!
//! ```text
//! waiting ── admit ──> running ── shrink, some blocks ──> running, to compute again what it lost
//!    ^                    └────── shrink, all blocks ──┐
//!    └─────────────────────────────────────────────────┘
//! ```
//! The moves between the states are methods here, so that a sequence outside `running` never holds a block and the
//! lists can't disagree with the sequences.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use ropeway_executor::Limits;

use crate::kv::{OutOfBlocks, Pool, table};
use crate::sequence::{Sequence, Slot};
use crate::tier::Tier;

/// All sequences, and the pool their blocks come from.
pub struct Roster {
    places: Vec<Place>,
    vacant: Vec<u32>,
    waiting: Vec<Slot>,
    running: Vec<Slot>,
    /// The blocks.
    pub pool: Pool,
    /// Where blocks are that memory does not hold.
    pub(crate) tier: Option<Arc<dyn Tier>>,
    limits: Limits,
}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roster")
            .field("waiting", &self.waiting)
            .field("running", &self.running)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Place {
    /// How many sequences it had before.
    life: u32,
    sequence: Option<Sequence>,
}

impl Roster {
    /// Nobody yet; room for `most` sequences without growing.
    pub fn new(limits: Limits, most: usize) -> Self {
        Self {
            places: Vec::with_capacity(most),
            vacant: Vec::with_capacity(most),
            waiting: Vec::with_capacity(most),
            running: Vec::with_capacity(most),
            pool: Pool::new(limits.blocks),
            tier: None,
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

    /// Everyone.
    pub fn everyone(&self) -> impl Iterator<Item = Slot> {
        self.waiting.iter().chain(&self.running).copied()
    }

    /// The sequence at `slot`, if it is still here.
    pub fn find(&self, slot: Slot) -> Option<&Sequence> {
        let place = &self.places[slot.index as usize];
        place.sequence.as_ref().filter(|_| place.life == slot.life)
    }

    /// The sequence at `slot`.
    pub fn get(&self, slot: Slot) -> &Sequence {
        self.find(slot).expect("a live slot")
    }

    /// The sequence at `slot`.
    pub fn get_mut(&mut self, slot: Slot) -> &mut Sequence {
        self.get_with_pool(slot).0
    }

    /// The sequence at `slot`, and the pool.
    pub fn get_with_pool(&mut self, slot: Slot) -> (&mut Sequence, &mut Pool) {
        let place = &mut self.places[slot.index as usize];
        let sequence = place.sequence.as_mut().filter(|_| place.life == slot.life);
        (sequence.expect("a live slot"), &mut self.pool)
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
        follower.charged = source.computed;
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
        sequence.table.release(pool);
        sequence.computed = 0;
    }

    /// A running sequence gives up its blocks beyond the first `kept`; without any it waits. Whether that interrupts it.
    pub fn shrink(&mut self, slot: Slot, kept: usize) -> bool {
        let limits = self.limits;
        let (sequence, pool) = self.get_with_pool(slot);
        let interrupted = sequence.shrink(kept, pool, &limits);
        if sequence.table.blocks().is_empty() {
            self.leave(slot);
            self.waiting.push(slot);
        }
        interrupted
    }

    /// Nothing more comes from a lower tier for a running sequence; without any block it waits.
    pub fn end_fetch(&mut self, slot: Slot) {
        let limits = self.limits;
        let (sequence, pool) = self.get_with_pool(slot);
        sequence.end_fetch(pool, &limits);
        if sequence.table.blocks().is_empty() {
            self.leave(slot);
            self.waiting.push(slot);
        }
    }

    /// What the blocks held is lost, and nothing is in flight: everyone waits, to be computed anew.
    pub fn start_over(&mut self) {
        while let Some(slot) = self.running.last() {
            self.shrink(*slot, 0);
        }
        for sequence in self.places.iter_mut().filter_map(|place| place.sequence.as_mut()) {
            sequence.in_flight = None;
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
        let place = &mut self.places[slot.index as usize];
        let mut sequence = place.sequence.take().expect("a live slot");
        place.life = place.life.wrapping_add(1);
        sequence.table.release(&mut self.pool);
        self.vacant.push(slot.index);
        sequence
    }

    /// Gives a running sequence the blocks for its next `tokens`.
    pub fn grow(&mut self, slot: Slot, tokens: usize) -> Result<Option<table::Copy>, OutOfBlocks> {
        let block_tokens = self.limits.block_tokens;
        let (sequence, pool) = self.get_with_pool(slot);
        let start = sequence.start();
        sequence.table.prepare(pool, start, start + tokens, block_tokens)
    }

    /// Blocks of a sequence after what is computed that a lower tier holds and that it could use. Only for a sequence that
    /// waits may they begin further on: for their sake it gives up what it found in memory, not what it computed.
    pub fn fetchable(&self, slot: Slot, waits: bool) -> Range<usize> {
        let (Some(tier), sequence) = (&self.tier, self.get(slot)) else { return 0..0 };
        if !sequence.may_fetch(self.limits.block_tokens) {
            return 0..0;
        }
        let found = sequence.found(&self.limits, |hash| tier.holds(hash));
        let follows = found.start * self.limits.block_tokens == sequence.computed;
        if waits || follows { found } else { 0..0 }
    }

    /// Whether the next block of a sequence is on its way already, for another one.
    pub fn is_on_its_way(&self, slot: Slot) -> bool {
        let sequence = self.get(slot);
        let next = sequence.computed / self.limits.block_tokens;
        let Some(hash) = sequence.chain.get(next) else { return false };
        self.running.iter().map(|other| self.get(*other)).any(|other| {
            let comes = other.fetching.is_some_and(|fetching| next < fetching.end);
            comes && other.chain.get(next) == Some(hash)
        })
    }

    /// Blocks that a running sequence takes from the pool for its next `tokens`.
    pub fn wanted(&self, slot: Slot, tokens: usize) -> usize {
        let block_tokens = self.limits.block_tokens;
        let sequence = self.get(slot);
        let (start, held) = (sequence.start(), sequence.table.blocks());
        let shared = held.get(start / block_tokens).is_some_and(|block| self.pool.is_shared(*block));
        let more = (start + tokens).div_ceil(block_tokens).saturating_sub(held.len());
        more + usize::from(shared)
    }

    /// Blocks that could be taken from the running sequences for which `yields` holds.
    pub fn reclaimable(&mut self, yields: impl Fn(&Sequence) -> bool) -> usize {
        let Self { running, places, pool, .. } = self;
        let sequences = running.iter().filter_map(|slot| places[slot.index as usize].sequence.as_ref());
        let yielding = sequences.filter(|sequence| yields(sequence));
        pool.held_only_by(yielding.map(|sequence| sequence.table.held()))
    }

    /// Checks what must always hold, at some expense.
    pub fn audit(&self) {
        let running = self.running.iter().map(|slot| self.get(*slot).table.held());
        self.pool.audit(running);
        for slot in &self.waiting {
            let sequence = self.get(*slot);
            assert!(sequence.table.blocks().is_empty(), "a waiting sequence holds no blocks");
            assert_eq!(sequence.start(), 0, "nothing is computed without blocks");
        }
        for slot in &self.running {
            let sequence = self.get(*slot);
            let held = sequence.table.blocks().len() * self.limits.block_tokens;
            assert!(held >= sequence.start(), "what is computed is held");
        }
        let live = self.places.iter().filter(|place| place.sequence.is_some()).count();
        assert_eq!(live, self.waiting.len() + self.running.len(), "everyone waits or runs");
        if live == 0 {
            assert_eq!(self.pool.counts().referenced, 0, "nobody is here, so nothing is held");
        }
    }

    fn settle(&mut self, sequence: Sequence) -> Slot {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        place.sequence = Some(sequence);
        Slot { index, life: place.life }
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
