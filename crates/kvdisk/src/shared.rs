//! What the caller's threads, the writer and the readers share.
//!
//! One lock guards the index and the queue; it is never held while a file is touched, and nothing under it takes longer
//! than a walk over one segment's slots.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::Key;
use crate::folder::Folder;
use crate::folder::snapshot::snapshot_bytes;
use crate::index::{Index, ShelfId};
use crate::options::Options;
use crate::reader::{Handles, Readers};
use crate::staging::{Buffer, FreeList};
use crate::status::{Counters, Status};

pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) folder: Folder,
    pub(crate) staging: Arc<Staging>,
    pub(crate) readers: Readers,
    pub(crate) handles: Handles,
    state: Mutex<State>,
    /// Something for the writer: a block, an errand, the end.
    pub(crate) writer_wake: Condvar,
    /// An errand is done.
    pub(crate) served: Condvar,
}

/// What changes.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) index: Index,
    /// Blocks to be written, in order. What is not in `waiting` any more is skipped.
    pub(crate) queue: VecDeque<Queued>,
    /// The same by key, and those being written.
    pub(crate) waiting: HashMap<(ShelfId, Key), Arc<Staged>>,
    /// Bytes of staging memory from `store` until written.
    pub(crate) queued_bytes: u64,
    pub(crate) read_only: Option<String>,
    pub(crate) stop: Option<Stop>,
    pub(crate) counters: Counters,
    pub(crate) flushes: Flushes,
    pub(crate) refreshes: Refreshes,
    pub(crate) end: Option<End>,
    /// The writer has ended.
    pub(crate) has_ended: bool,
}

/// A block to be written.
pub(crate) struct Queued {
    pub(crate) shelf: ShelfId,
    pub(crate) key: Key,
    pub(crate) staged: Arc<Staged>,
}

/// Why nothing is written for a time.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    pub(crate) why: String,
    pub(crate) retry_at: Instant,
}

/// How far the queue is on disk, in blocks since the beginning: `synced <= left <= entered`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flushes {
    /// Blocks that were queued.
    pub(crate) entered: u64,
    /// Blocks that were written or given up.
    pub(crate) left: u64,
    /// Blocks among them that survive a loss of power, if they were written.
    pub(crate) synced: u64,
    /// Up to here someone waits.
    pub(crate) wanted: u64,
}

impl Flushes {
    /// Someone waits: the allowed speed does not count.
    pub(crate) fn is_wanted(self) -> bool {
        self.wanted > self.synced
    }

    /// What someone waits for is written, and not synced.
    pub(crate) fn is_due(self) -> bool {
        self.is_wanted() && self.left >= self.wanted
    }
}

/// How often the writer was asked to look at the folder, and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refreshes {
    pub(crate) asked: u64,
    pub(crate) done: u64,
}

/// How the threads are to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With everything written, if there is time until then.
    Orderly(Instant),
    /// Now.
    Abrupt,
}

impl Shared {
    pub(crate) fn new(options: Options) -> Self {
        let mut state = State::default();
        state.index.pins.allowed = options.size / 100 * u64::from(options.pinned_percent.min(100));
        Self {
            folder: Folder::new(&options.dir),
            staging: Arc::new(Staging::new(options.queue)),
            readers: Readers::new(options.read_ahead),
            handles: Handles::default(),
            state: Mutex::new(state),
            writer_wake: Condvar::new(),
            served: Condvar::new(),
            options,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn status(&self) -> Status {
        let fetches = self.readers.fetches();
        let state = self.lock();
        Status {
            stock: state.index.shelves.total(),
            segments: state.index.segments().count() as u64,
            file_bytes: state.file_bytes(0),
            size: self.options.size,
            queued_bytes: state.queued_bytes,
            queued_blocks: state.waiting.len() as u64,
            pinned_bytes: state.index.pins.bytes(),
            fetches,
            read_only: state.read_only.clone(),
            stopped: state.stop.as_ref().map(|stop| stop.why.clone()),
            counters: state.counters,
        }
    }
}

impl State {
    /// On disk or waiting to be written.
    pub(crate) fn holds(&self, shelf: ShelfId, key: &Key) -> bool {
        self.index.find(shelf, key).is_some()
            || (!self.waiting.is_empty() && self.waiting.contains_key(&(shelf, *key)))
    }

    /// Bytes of all files if so many blocks were added.
    pub(crate) fn file_bytes(&self, more_blocks: u64) -> u64 {
        self.index.file_bytes().saturating_add(snapshot_bytes(&self.index, more_blocks))
    }

    /// Whether a block may be queued now.
    pub(crate) fn is_writing(&self) -> bool {
        self.read_only.is_none() && self.stop.is_none() && self.end.is_none()
    }

    /// Gives up what waits; returns it, to be dropped without the lock.
    pub(crate) fn drop_queue(&mut self) -> Vec<Queued> {
        let queue: Vec<_> = std::mem::take(&mut self.queue).into();
        for queued in &queue {
            self.leave_queue(queued);
        }
        self.counters.dropped_blocks += queue.len() as u64;
        queue
    }

    /// A block is not in the queue any more; whether it was still wanted.
    pub(crate) fn leave_queue(&mut self, queued: &Queued) -> bool {
        self.queued_bytes -= queued.staged.len() as u64;
        self.flushes.left += 1;
        let name = (queued.shelf, queued.key);
        let is_wanted = self.is_wanted(queued);
        if is_wanted {
            self.waiting.remove(&name);
        }
        is_wanted
    }

    /// Whether a queued block was not forgotten meanwhile.
    pub(crate) fn is_wanted(&self, queued: &Queued) -> bool {
        let current = self.waiting.get(&(queued.shelf, queued.key));
        current.is_some_and(|staged| Arc::ptr_eq(staged, &queued.staged))
    }
}

/// Staging memory for blocks to be written.
pub(crate) struct Staging {
    free: Mutex<FreeList>,
}

impl Staging {
    fn new(limit: u64) -> Self {
        Self { free: Mutex::new(FreeList::new(limit)) }
    }

    fn free(&self) -> MutexGuard<'_, FreeList> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Staged {
        let kept = self.free().take(len);
        let buffer = kept.unwrap_or_else(|| Buffer::new(len));
        Staged { buffer: Some(buffer), home: Arc::clone(self) }
    }

    /// Gives memory that is not used now back to the system.
    pub(crate) fn trim(&self) {
        let unused = self.free().empty();
        drop(unused);
    }
}

/// A record in staging memory; the memory goes home when it is dropped.
pub(crate) struct Staged {
    buffer: Option<Buffer>,
    home: Arc<Staging>,
}

impl Staged {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], Buffer::bytes)
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut().map_or(&mut [], Buffer::bytes_mut)
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes().len()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let surplus = self.buffer.take().and_then(|buffer| self.home.free().put(buffer));
        drop(surplus);
    }
}

/// Wall time in seconds since 1970, for people.
pub(crate) fn wall_seconds() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}
