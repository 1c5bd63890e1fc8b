//! A disk that only takes time: it holds names, and gives blocks back as fast as its model says.
//!
//! Reads share one bandwidth in the order in which they were asked for, writes another. The block that was used longest ago
//! makes room, as in `ropeway-kvdisk`, which does it by segments.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ropeway_engine::Clock;
use ropeway_engine::kv::BlockHash;
use ropeway_engine::tier::{Arrival, Stored, Tier, Transfer};

use crate::SimClock;

/// What a disk can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskModel {
    /// Blocks that it holds.
    pub blocks: usize,
    /// From the question to the first byte.
    pub latency: Duration,
    /// Time to read a block.
    pub read: Duration,
    /// Time to write a block.
    pub write: Duration,
    /// Blocks that may wait to be written; more are not taken.
    pub queue: u32,
}

/// The disk, as a tier below the block pool.
pub struct TimedDisk {
    clock: SimClock,
    model: DiskModel,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When each block was last used.
    held: HashMap<BlockHash, u64>,
    /// The same in the order of their use.
    order: BTreeMap<u64, BlockHash>,
    uses: u64,
    /// When everything that was asked for is read.
    read_until: Duration,
    /// When everything that was stored is written.
    written_until: Duration,
}

impl TimedDisk {
    /// An empty one.
    pub fn new(clock: SimClock, model: DiskModel) -> Self {
        Self { clock, model, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TimedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedDisk").field("model", &self.model).finish_non_exhaustive()
    }
}

impl State {
    /// A block is used now; it may be a new one.
    fn note_use(&mut self, hash: BlockHash) {
        self.uses += 1;
        if let Some(before) = self.held.insert(hash, self.uses) {
            self.order.remove(&before);
        }
        self.order.insert(self.uses, hash);
    }

    fn evict_to(&mut self, blocks: usize) {
        while self.held.len() > blocks
            && let Some((_, hash)) = self.order.pop_first()
        {
            self.held.remove(&hash);
        }
    }
}

impl Tier for TimedDisk {
    fn holds(&self, hash: BlockHash) -> bool {
        self.state().held.contains_key(&hash)
    }

    fn store(&self, hash: BlockHash, fill: &mut dyn FnMut(&mut [u8])) -> Stored {
        let (mut state, now) = (self.state(), self.clock.now());
        if state.written_until > now + self.model.write * self.model.queue {
            return Stored::Full;
        }
        fill(&mut []);
        state.written_until = state.written_until.max(now) + self.model.write;
        state.note_use(hash);
        state.evict_to(self.model.blocks);
        Stored::Kept
    }

    fn fetch(&self, hashes: Vec<BlockHash>) -> Box<dyn Transfer> {
        let mut state = self.state();
        let mut next = state.read_until.max(self.clock.now());
        let mut arrivals = VecDeque::with_capacity(hashes.len());
        for hash in hashes {
            if !state.held.contains_key(&hash) {
                break;
            }
            state.note_use(hash);
            next += self.model.read;
            arrivals.push_back(next + self.model.latency);
        }
        state.read_until = next;
        Box::new(TimedTransfer { clock: self.clock.clone(), arrivals })
    }

    fn forget(&self, hash: BlockHash) {
        let mut state = self.state();
        if let Some(used) = state.held.remove(&hash) {
            state.order.remove(&used);
        }
    }

    fn flush(&self, _: Duration) {}
}

struct TimedTransfer {
    clock: SimClock,
    /// When the blocks are there.
    arrivals: VecDeque<Duration>,
}

impl Transfer for TimedTransfer {
    fn poll(&mut self, take: &mut dyn FnMut(&[u8])) -> Arrival {
        match self.arrivals.front() {
            None => Arrival::Over,
            Some(at) if *at > self.clock.now() => Arrival::Pending,
            Some(_) => {
                self.arrivals.pop_front();
                take(&[]);
                Arrival::Block
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: DiskModel = DiskModel {
        blocks: 2,
        latency: Duration::from_millis(1),
        read: Duration::from_millis(10),
        write: Duration::from_millis(20),
        queue: 3,
    };

    fn hash(number: u32) -> BlockHash {
        BlockHash::root(b"").then(&[&[number]])
    }

    fn arrived(transfer: &mut dyn Transfer) -> usize {
        std::iter::from_fn(|| (transfer.poll(&mut |_| {}) == Arrival::Block).then_some(())).count()
    }

    #[test]
    fn the_block_that_was_used_longest_ago_makes_room() {
        let disk = TimedDisk::new(SimClock::new(), MODEL);
        for number in [1, 2] {
            assert_eq!(disk.store(hash(number), &mut |_| {}), Stored::Kept);
        }
        drop(disk.fetch(vec![hash(1)]));
        assert_eq!(disk.store(hash(3), &mut |_| {}), Stored::Kept);
        assert_eq!([1, 2, 3].map(|number| disk.holds(hash(number))), [true, false, true]);
        disk.forget(hash(1));
        assert!(!disk.holds(hash(1)));
    }

    #[test]
    fn reads_share_one_bandwidth_in_the_order_of_their_questions() {
        let clock = SimClock::new();
        let disk = TimedDisk::new(clock.clone(), MODEL);
        assert_eq!([1, 2].map(|number| disk.store(hash(number), &mut |_| {})), [Stored::Kept; 2]);
        let mut first = disk.fetch(vec![hash(1), hash(2), hash(3)]);
        let mut second = disk.fetch(vec![hash(2)]);
        for (at, want) in [(10, [0, 0]), (11, [1, 0]), (21, [1, 0]), (31, [0, 1])] {
            clock.advance_to(Duration::from_millis(at));
            assert_eq!([arrived(first.as_mut()), arrived(second.as_mut())], want, "at {at} ms");
        }
        assert_eq!(first.poll(&mut |_| {}), Arrival::Over, "what it does not hold does not come");
    }

    #[test]
    fn what_can_not_be_written_soon_is_not_taken() {
        let clock = SimClock::new();
        let disk = TimedDisk::new(clock.clone(), DiskModel { blocks: 100, ..MODEL });
        let taken = |from: u32| {
            (from..from + 10).filter(|number| disk.store(hash(*number), &mut |_| {}) == Stored::Kept).count()
        };
        assert_eq!(taken(0), 4, "one that is being written and three that wait");
        clock.advance(Duration::from_millis(40));
        assert_eq!(taken(100), 2);
    }
}
