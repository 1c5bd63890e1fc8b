//! The reader threads: large reads for whoever waits, in turns.
//!
//! ```text
//! fetches:  A [0 1 2 3 4 5 ...]   B [0 1 2 ...]
//! turns:    A 0-3 | B 0-2 | A 4-7 | ...          neighbours on disk are one read of at most 2 MiB
//! ```
//!
//! Staging memory is bounded over all fetches. A fetch that holds none may always read one block, so that no fetch
//! waits for another's consumer.

mod extent;
mod handles;
mod plan;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::fetch::Transfer;
use crate::shared::Shared;
use crate::staging::{Buffer, FreeList};

pub(crate) use extent::{Extent, is_record};
pub(crate) use handles::Handles;
pub(crate) use plan::Job;

/// Threads that read: while one waits for the disk, the other checks what it has read.
pub(crate) const THREADS: usize = 2;

/// Who waits, and the memory for what is read.
pub(crate) struct Readers {
    queue: Mutex<ReadQueue>,
    changed: Condvar,
    read_ahead: u64,
}

struct ReadQueue {
    /// Fetches with keys that nobody reads yet; the next one first.
    transfers: VecDeque<Arc<Transfer>>,
    /// Fetches that need nothing more. They own what callers gave them, so they are dropped without the lock.
    finished: Vec<Arc<Transfer>>,
    /// Staging bytes in use.
    used: u64,
    free: FreeList,
    is_over: bool,
}

impl Readers {
    pub(crate) fn new(read_ahead: u64) -> Self {
        let free = FreeList::new(read_ahead);
        let queue =
            ReadQueue { transfers: VecDeque::new(), finished: Vec::new(), used: 0, free, is_over: false };
        Self { queue: Mutex::new(queue), changed: Condvar::new(), read_ahead }
    }

    fn lock(&self) -> MutexGuard<'_, ReadQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fetches(&self) -> u64 {
        self.lock().transfers.len() as u64
    }

    pub(crate) fn add(&self, transfer: Arc<Transfer>) {
        let mut queue = self.lock();
        if queue.is_over {
            transfer.fail_rest();
            return;
        }
        queue.transfers.push_back(transfer);
        drop(queue);
        self.changed.notify_one();
    }

    /// Ends the threads; who waits gets nothing more.
    pub(crate) fn end(&self) {
        let mut queue = self.lock();
        queue.is_over = true;
        let transfers = std::mem::take(&mut queue.transfers);
        drop(queue);
        self.changed.notify_all();
        for transfer in transfers {
            transfer.fail_rest();
            transfer.wake();
        }
    }

    /// Gives memory that is not used now back to the system.
    pub(crate) fn trim(&self) {
        let mut queue = self.lock();
        let unused = if queue.used == 0 { queue.free.empty() } else { Vec::new() };
        drop(queue);
        drop(unused);
    }

    /// Memory that a fetch does not need any more.
    pub(crate) fn take_back(&self, memory: Buffer) {
        let mut queue = self.lock();
        queue.used -= memory.bytes().len() as u64;
        let surplus = queue.free.put(memory);
        drop(queue);
        drop(surplus);
        self.changed.notify_one();
    }

    /// The next read; `None` when the threads are to end.
    fn next(&self, shared: &Arc<Shared>) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if queue.is_over {
                return None;
            }
            let job = queue.plan(shared, self.read_ahead);
            let finished = std::mem::take(&mut queue.finished);
            if job.is_none() && finished.is_empty() {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let are_more = !queue.transfers.is_empty();
            drop(queue);
            drop(finished);
            if job.is_some() {
                if are_more {
                    self.changed.notify_one();
                }
                return job;
            }
            queue = self.lock();
        }
    }
}

impl ReadQueue {
    /// Plans a read for the first fetch in turn that may have one.
    fn plan(&mut self, shared: &Arc<Shared>, read_ahead: u64) -> Option<Job> {
        for _ in 0..self.transfers.len() {
            let transfer = self.transfers.pop_front()?;
            let unplanned = transfer.unplanned();
            if unplanned.is_empty() {
                self.finished.push(transfer);
                continue;
            }
            let room = read_ahead.saturating_sub(self.used);
            let job = plan::plan(shared, &transfer, unplanned.clone(), room);
            match &job {
                Some(job) if job.keys() == unplanned.len() => self.finished.push(transfer),
                _ => self.transfers.push_back(transfer),
            }
            let Some(mut job) = job else { continue };
            self.used += job.staging_bytes();
            job.take_memory(&mut self.free);
            return Some(job);
        }
        None
    }
}

/// What a reader thread does.
pub(crate) fn run(shared: &Arc<Shared>) {
    while let Some(job) = shared.readers.next(shared) {
        job.run(shared);
    }
}
