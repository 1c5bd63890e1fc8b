//! A tier in simulated time that is slow, fails, lies and forgets, but never gives other bytes than were stored.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ropeway_engine::Clock;
use ropeway_engine::kv::BlockHash;
use ropeway_engine::tier::{Arrival, Stored, Tier, Transfer};

use crate::SimClock;
use crate::rng::Rng;

/// What a disk is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskNature {
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Blocks that it holds; the oldest go.
    pub room: usize,
    /// Until the first block of a transfer is there.
    pub latency: Duration,
    /// Until the next is there.
    pub each: Duration,
    /// Chance that a stored block is refused, or that the queue is full.
    pub refuses: f64,
    /// Chance that a block is gone when it is fetched, although it was said to be there.
    pub lies: f64,
    /// Chance that a transfer never ends.
    pub hangs: f64,
    /// Chance that storing a block makes it forget another.
    pub forgets: f64,
    /// Where its chances come from.
    pub seed: u64,
}

impl DiskNature {
    /// One that does what it should.
    pub const RELIABLE: DiskNature = DiskNature {
        block_bytes: 128,
        room: 1 << 20,
        latency: Duration::from_millis(1),
        each: Duration::from_micros(100),
        refuses: 0.0,
        lies: 0.0,
        hangs: 0.0,
        forgets: 0.0,
        seed: 0,
    };
}

/// The disk. Clones are the same disk, so that one engine finds what another stored.
#[derive(Clone)]
pub struct SimDisk {
    clock: SimClock,
    nature: DiskNature,
    state: Arc<Mutex<State>>,
}

struct State {
    blocks: HashMap<BlockHash, Arc<[u8]>>,
    order: VecDeque<BlockHash>,
    rng: Rng,
}

impl SimDisk {
    /// An empty one.
    pub fn new(clock: SimClock, nature: DiskNature) -> Self {
        let (blocks, order, rng) = (HashMap::new(), VecDeque::new(), Rng::new(nature.seed));
        Self { clock, nature, state: Arc::new(Mutex::new(State { blocks, order, rng })) }
    }

    /// Blocks that it holds.
    pub fn blocks(&self) -> usize {
        self.state().blocks.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").field("nature", &self.nature).finish_non_exhaustive()
    }
}

impl State {
    fn insert(&mut self, hash: BlockHash, bytes: Vec<u8>) {
        if self.blocks.insert(hash, bytes.into()).is_none() {
            self.order.push_back(hash);
        }
    }

    fn remove(&mut self, place: usize) {
        if let Some(hash) = self.order.remove(place) {
            self.blocks.remove(&hash);
        }
    }
}

impl Tier for SimDisk {
    fn holds(&self, hash: BlockHash) -> bool {
        self.state().blocks.contains_key(&hash)
    }

    fn store(&self, hash: BlockHash, fill: &mut dyn FnMut(&mut [u8])) -> Stored {
        let mut state = self.state();
        if state.rng.chance(self.nature.refuses) {
            return if state.rng.chance(0.5) { Stored::Full } else { Stored::Refused };
        }
        let mut bytes = vec![0; self.nature.block_bytes];
        fill(&mut bytes);
        state.insert(hash, bytes);
        if state.order.len() > self.nature.room {
            state.remove(0);
        }
        if state.rng.chance(self.nature.forgets) {
            let place = state.rng.clone().below(state.order.len().max(1));
            state.remove(place);
        }
        Stored::Kept
    }

    fn fetch(&self, hashes: Vec<BlockHash>) -> Box<dyn Transfer> {
        let mut state = self.state();
        let hangs = state.rng.chance(self.nature.hangs);
        let blocks = hashes.iter().map(|hash| {
            let gone = state.rng.chance(self.nature.lies);
            state.blocks.get(hash).cloned().filter(|_| !gone)
        });
        let blocks: VecDeque<_> = blocks.collect();
        let next = self.clock.now() + self.nature.latency;
        let (clock, each) = (self.clock.clone(), self.nature.each);
        Box::new(SimTransfer { clock, blocks, next, each, hangs })
    }

    fn forget(&self, hash: BlockHash) {
        let mut state = self.state();
        if let Some(place) = state.order.iter().position(|one| *one == hash) {
            state.remove(place);
        }
    }

    fn flush(&self, _: Duration) {}
}

struct SimTransfer {
    clock: SimClock,
    /// What is still to come; `None` for what is gone.
    blocks: VecDeque<Option<Arc<[u8]>>>,
    /// When the next one arrives.
    next: Duration,
    each: Duration,
    hangs: bool,
}

impl Transfer for SimTransfer {
    fn poll(&mut self, take: &mut dyn FnMut(&[u8])) -> Arrival {
        if self.hangs || self.clock.now() < self.next {
            return Arrival::Pending;
        }
        let Some(bytes) = self.blocks.pop_front().flatten() else {
            self.blocks.clear();
            return Arrival::Over;
        };
        take(&bytes);
        self.next += self.each;
        Arrival::Block
    }
}
