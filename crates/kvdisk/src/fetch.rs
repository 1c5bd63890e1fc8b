//! Blocks on their way from disk.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Key;
use crate::format::RECORD_HEADER;
use crate::index::ShelfId;
use crate::reader::Extent;
use crate::shared::{Shared, Staged};

/// Called when something arrives.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Blocks that are being read, in the order they were asked for. Dropping it cancels what is left.
pub struct Fetch {
    transfer: Arc<Transfer>,
}

/// What a fetch has now.
#[derive(Debug)]
pub enum FetchPoll {
    /// The next block in order, verified.
    Ready(FetchedBlock),
    /// The next block has not arrived.
    Pending,
    /// The next block is gone or damaged; neither it nor the rest is coming.
    Failed,
    /// Nothing is left to come.
    Done,
}

impl Fetch {
    pub(crate) fn start(shared: &Arc<Shared>, shelf: ShelfId, keys: Vec<Key>, wake: Wake) -> Self {
        let transfer = Arc::new(Transfer {
            shelf,
            keys,
            wake,
            held: AtomicU64::new(0),
            arrivals: Mutex::new(Arrivals::default()),
        });
        shared.readers.add(Arc::clone(&transfer));
        Self { transfer }
    }

    /// The next block, if it has arrived. Never waits for a disk.
    pub fn poll(&mut self) -> FetchPoll {
        let mut arrivals = self.transfer.arrivals();
        if arrivals.is_over || arrivals.taken == self.transfer.keys.len() {
            return FetchPoll::Done;
        }
        match arrivals.next.pop_front() {
            Some(Arrival::Ready(block)) => {
                arrivals.taken += 1;
                FetchPoll::Ready(block)
            }
            Some(Arrival::Failed) => {
                let rest = arrivals.end();
                drop(arrivals);
                drop(rest);
                FetchPoll::Failed
            }
            Some(Arrival::Pending) => {
                arrivals.next.push_front(Arrival::Pending);
                FetchPoll::Pending
            }
            None => FetchPoll::Pending,
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        // What has arrived is dropped without the lock: its memory goes back to the readers.
        let rest = self.transfer.arrivals().end();
        drop(rest);
    }
}

/// A fetch as the readers see it.
pub(crate) struct Transfer {
    pub(crate) shelf: ShelfId,
    pub(crate) keys: Vec<Key>,
    wake: Wake,
    /// Bytes of staging memory that its blocks take, handed out or not.
    pub(crate) held: AtomicU64,
    arrivals: Mutex<Arrivals>,
}

/// Keys `0..taken` are handed out, `taken..taken + next.len()` are being read or wait here, the rest is to be planned.
#[derive(Default)]
pub(crate) struct Arrivals {
    taken: usize,
    next: VecDeque<Arrival>,
    /// One of `next` has failed: what is after it is not wanted.
    has_failed: bool,
    /// Nothing is wanted any more; `next` is empty from then on.
    is_over: bool,
}

pub(crate) enum Arrival {
    Pending,
    Ready(FetchedBlock),
    Failed,
}

impl Arrivals {
    fn end(&mut self) -> VecDeque<Arrival> {
        self.is_over = true;
        std::mem::take(&mut self.next)
    }
}

impl Transfer {
    fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys that nobody reads yet; empty when nothing more is wanted.
    pub(crate) fn unplanned(&self) -> Range<usize> {
        let arrivals = self.arrivals();
        let end = self.keys.len();
        if arrivals.is_over || arrivals.has_failed {
            end..end
        } else {
            arrivals.taken + arrivals.next.len()..end
        }
    }

    /// The next so many keys are being read.
    pub(crate) fn plan(&self, keys: usize) {
        let mut arrivals = self.arrivals();
        if !arrivals.is_over {
            arrivals.next.extend((0..keys).map(|_| Arrival::Pending));
        }
    }

    /// What became of the key at `index` and those after it.
    pub(crate) fn arrive(&self, index: usize, results: Vec<Arrival>) {
        let mut unwanted = Vec::new();
        let mut arrivals = self.arrivals();
        let first = index - arrivals.taken.min(index);
        for (at, result) in results.into_iter().enumerate() {
            arrivals.has_failed |= matches!(result, Arrival::Failed);
            match arrivals.next.get_mut(first + at) {
                Some(place) => *place = result,
                None => unwanted.push(result),
            }
        }
        drop(arrivals);
        drop(unwanted);
    }

    pub(crate) fn wake(&self) {
        (self.wake)();
    }

    /// Nobody reads for it any more.
    pub(crate) fn fail_rest(&self) {
        let unplanned = self.unplanned();
        if !unplanned.is_empty() {
            self.plan(1);
            self.arrive(unplanned.start, vec![Arrival::Failed]);
        }
    }

    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

/// A block's bytes in staging memory, which is used again when this is dropped: copy and drop soon.
pub struct FetchedBlock {
    source: Source,
    range: Range<usize>,
}

enum Source {
    Read(Arc<Extent>),
    Queue(Arc<Staged>),
}

impl FetchedBlock {
    /// A block in the record that begins at `start`.
    pub(crate) fn read(extent: Arc<Extent>, start: usize, block_bytes: usize) -> Self {
        let block = start + RECORD_HEADER;
        Self { source: Source::Read(extent), range: block..block + block_bytes }
    }

    /// A block that was not written yet.
    pub(crate) fn queued(staged: Arc<Staged>, block_bytes: usize) -> Self {
        Self { source: Source::Queue(staged), range: RECORD_HEADER..RECORD_HEADER + block_bytes }
    }
}

impl Deref for FetchedBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.source {
            Source::Read(extent) => &extent.bytes()[self.range.clone()],
            Source::Queue(staged) => &staged.bytes()[self.range.clone()],
        }
    }
}

impl fmt::Debug for FetchedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchedBlock").field("bytes", &self.range.len()).finish_non_exhaustive()
    }
}
