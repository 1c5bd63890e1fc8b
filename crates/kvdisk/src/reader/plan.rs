//! What is read next for a fetch.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::extent::{Extent, Records};
use crate::fetch::{Arrival, FetchedBlock, Transfer};
use crate::index::Place;
use crate::shared::{Shared, Staged, State, wall_seconds};
use crate::staging::{Buffer, FreeList};

/// Bytes of one read at most. Two threads with 2 MiB each read 4.4 GB/s on the reference machine, with 8 MiB 2.5 GB/s (more
/// memory is touched) and with one block each 4.0 GB/s; the first block is there after 0.7 ms instead of 4.
const EXTENT: u64 = 2 << 20;

/// A piece of work for a reader thread.
pub(crate) struct Job {
    transfer: Arc<Transfer>,
    /// The first key it is about.
    first: usize,
    work: Work,
}

enum Work {
    /// Records beside each other in one segment.
    Read { records: Records, memory: Option<Buffer> },
    /// A block that was not written yet, and its length.
    FromQueue(Arc<Staged>, usize),
    /// The block is gone.
    Fail,
}

/// Plans a read of the first of these keys and those beside it, within `room` bytes of memory. `None`: no room now.
pub(super) fn plan(
    shared: &Arc<Shared>,
    transfer: &Arc<Transfer>,
    keys: Range<usize>,
    room: u64,
) -> Option<Job> {
    let mut state = shared.lock();
    let stride = state.index.shelves.stride(transfer.shelf) as u64;
    let key = &transfer.keys[keys.start];
    let work = if let Some(place) = state.index.find(transfer.shelf, key) {
        let fits = room.min(EXTENT) / stride;
        let at_least = u64::from(transfer.held() == 0);
        let limit = fits.max(at_least).min(keys.len() as u64) as usize;
        let count = neighbours(&mut state, transfer, keys.start, place, limit);
        if count == 0 {
            return None;
        }
        Work::Read { records: records(&state, transfer, place, keys.start..keys.start + count), memory: None }
    } else if let Some(staged) = state.waiting.get(&(transfer.shelf, *key)) {
        Work::FromQueue(Arc::clone(staged), state.index.shelves.spec(transfer.shelf).block_bytes)
    } else {
        Work::Fail
    };
    drop(state);
    let job = Job { transfer: Arc::clone(transfer), first: keys.start, work };
    job.transfer.plan(job.keys());
    job.transfer.held.fetch_add(job.staging_bytes(), Ordering::Relaxed);
    Some(job)
}

/// How many keys from `first` on lie beside each other from `place` on; they are used now.
fn neighbours(state: &mut State, transfer: &Transfer, first: usize, place: Place, limit: usize) -> usize {
    let now = wall_seconds();
    let keys = transfer.keys[first..].iter().take(limit);
    let mut expected = place;
    for (count, key) in keys.enumerate() {
        if state.index.find(transfer.shelf, key) != Some(expected) {
            return count;
        }
        state.index.touch(expected, now);
        expected.slot += 1;
    }
    limit
}

fn records(state: &State, transfer: &Transfer, place: Place, keys: Range<usize>) -> Records {
    let Place { segment, slot } = place;
    Records {
        segment,
        nonce: state.index.segment(segment).map_or(0, |segment| segment.nonce),
        first: slot,
        keys: transfer.keys[keys].to_vec(),
        block_bytes: state.index.shelves.spec(transfer.shelf).block_bytes,
    }
}

impl Job {
    /// How many keys it is about.
    pub(super) fn keys(&self) -> usize {
        match &self.work {
            Work::Read { records, .. } => records.keys.len(),
            Work::FromQueue(..) | Work::Fail => 1,
        }
    }

    /// Staging memory that it needs.
    pub(super) fn staging_bytes(&self) -> u64 {
        match &self.work {
            Work::Read { records, .. } => records.bytes() as u64,
            Work::FromQueue(..) | Work::Fail => 0,
        }
    }

    /// Takes memory that is kept; without, it is allocated when the readers' lock is not held.
    pub(super) fn take_memory(&mut self, free: &mut FreeList) {
        if let Work::Read { records, memory } = &mut self.work {
            *memory = free.take(records.bytes());
        }
    }

    /// Reads and checks the blocks, and hands them to the fetch.
    pub(super) fn run(self, shared: &Arc<Shared>) {
        let Self { transfer, first, work } = self;
        let arrivals = match work {
            Work::Read { records, memory } => {
                let memory = memory.unwrap_or_else(|| Buffer::new(records.bytes()));
                Extent::read(shared, &transfer, &records, memory)
            }
            Work::FromQueue(staged, block_bytes) => {
                shared.lock().counters.read_from_queue += 1;
                vec![Arrival::Ready(FetchedBlock::queued(staged, block_bytes))]
            }
            Work::Fail => {
                shared.lock().counters.read_failures += 1;
                vec![Arrival::Failed]
            }
        };
        transfer.arrive(first, arrivals);
        transfer.wake();
    }
}
