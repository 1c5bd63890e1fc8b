//! The writer thread: writes what is queued, keeps the area within its limits, looks at the folder now and then.
//!
//! ```text
//! queue -> batch (one shelf, at most 16 MiB) -> room (reclaim) -> append to the shelf's active segment -> index
//! ```
//!
//! What takes long (checksums, writes) is done by a thread of low priority, [`appender`], that holds no lock.
//!
//! The writer is the only one that creates, completes and deletes segments. In a process that does not hold the folder's lock it
//! only looks for what the other process writes, and takes over when that one has ended.

mod active;
mod appender;
mod batch;
mod check;
mod pace;
mod room;
mod segments;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::folder::{FolderLock, SegmentId, snapshot};
use crate::index::ShelfId;
use crate::shared::{End, Queued, Shared, State, Stop, wall_seconds};

use active::Active;
use appender::Appender;
use pace::Pace;

pub(crate) use check::shrink;

/// How often the folder is looked at and what was written is synced.
const CHECK: Duration = Duration::from_secs(5);
/// How often last uses and pins are saved.
const SAVE: Duration = Duration::from_secs(30);
/// Time until writing is tried again after an error, which doubles with each further one.
const RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_secs(300);
/// Bytes of one write at most.
const BATCH: u64 = 16 << 20;
/// Shelves that are written to at a time at most: each has an open file and room for a footer.
const ACTIVE: usize = 4;

pub(crate) struct Writer {
    shared: Arc<Shared>,
    /// Held by the one process that writes.
    lock: Option<FolderLock>,
    active: HashMap<ShelfId, Active>,
    appender: Appender,
    next_id: SegmentId,
    pace: Pace,
    next_check: Instant,
    next_save: Instant,
    /// Logical time of the last snapshot.
    saved: u64,
    retry: Duration,
}

/// What is to be done next.
enum Task {
    Write(Vec<Queued>),
    Check,
    Sync,
    Refresh(u64),
    End(End),
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, lock: Option<FolderLock>) -> Self {
        let now = Instant::now();
        let (next_id, saved) = {
            let state = shared.lock();
            (next_id(&state), state.index.now())
        };
        Self {
            pace: Pace::new(shared.options.write_speed, now),
            shared,
            lock,
            active: HashMap::new(),
            appender: Appender::start(),
            next_id,
            next_check: now + CHECK,
            next_save: now + SAVE,
            saved,
            retry: RETRY,
        }
    }

    /// What the thread does.
    pub(crate) fn run(mut self) {
        loop {
            match self.next_task() {
                Task::Write(batch) => self.write(&batch),
                Task::Check => self.check(),
                Task::Sync => self.sync(),
                Task::Refresh(number) => {
                    self.refresh();
                    self.shared.lock().refreshes.done = number;
                    self.shared.served.notify_all();
                }
                Task::End(end) => return self.end(end),
            }
        }
    }

    fn next_task(&self) -> Task {
        let mut state = self.shared.lock();
        loop {
            let now = Instant::now();
            if let Some(task) = self.due(&mut state, now) {
                return task;
            }
            let queued = (!state.queue.is_empty()).then(|| self.pace.next());
            let until = queued.map_or(self.next_check, |pace| pace.min(self.next_check));
            let wait = until.saturating_duration_since(now);
            let woken = self.shared.writer_wake.wait_timeout(state, wait);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn due(&self, state: &mut State, now: Instant) -> Option<Task> {
        let is_hasty = state.end.is_some() || state.flushes.is_wanted();
        match state.end {
            Some(End::Abrupt) => return Some(Task::End(End::Abrupt)),
            Some(End::Orderly(until)) if state.queue.is_empty() || now >= until => {
                return Some(Task::End(End::Orderly(until)));
            }
            _ => {}
        }
        if state.refreshes.asked > state.refreshes.done {
            return Some(Task::Refresh(state.refreshes.asked));
        }
        if state.flushes.is_due() {
            return Some(Task::Sync);
        }
        if !state.queue.is_empty() && (is_hasty || now >= self.pace.next()) {
            return Some(Task::Write(batch::take(state, self.pace.batch_bytes(BATCH))));
        }
        (now >= self.next_check).then_some(Task::Check)
    }

    /// Writing stops for a time; what is queued is given up.
    fn stop(&mut self, why: String, retry: Duration) {
        tracing::warn!(target: "kvdisk", why, "nothing is written for now");
        let mut state = self.shared.lock();
        state.stop = Some(Stop { why, retry_at: Instant::now() + retry });
        let dropped = state.drop_queue();
        drop(state);
        drop(dropped);
        self.next_check = self.next_check.min(Instant::now() + RETRY);
    }

    /// Writing stops after an error of the system.
    fn stop_after(&mut self, error: &io::Error) {
        self.shared.lock().counters.write_failures += 1;
        let why = format!("can't write to {}: {error}", self.shared.folder.dir().display());
        self.stop(why, self.retry);
        self.retry = (self.retry * 2).min(LONGEST_RETRY);
    }

    fn end(mut self, end: End) {
        if end != End::Abrupt && self.lock.is_some() {
            let shelves: Vec<_> = self.active.keys().copied().collect();
            for shelf in shelves {
                self.complete_segment(shelf);
            }
            self.save();
        }
    }

    /// Saves last uses and pins.
    fn save(&mut self) {
        let state = self.shared.lock();
        let now = state.index.now();
        let mut bytes = snapshot::encode_head(&state.index);
        let ids: Vec<_> = state.index.segments().map(|(id, _)| id).collect();
        drop(state);
        // One segment at a time, so that nobody waits for the whole.
        for id in ids {
            if let Some(segment) = self.shared.lock().index.segment(id) {
                snapshot::encode_segment(&mut bytes, id, segment);
            }
        }
        match snapshot::save(&self.shared.folder, bytes) {
            Ok(()) => self.saved = now,
            Err(error) => tracing::warn!(target: "kvdisk", %error, "last uses of blocks can't be saved"),
        }
    }
}

/// Numbers begin with the time in seconds, so that a folder that was cleared does not use any again.
fn next_id(state: &State) -> SegmentId {
    let after_last = state.index.last_id().map_or(SegmentId(1), SegmentId::next);
    after_last.max(SegmentId::from_time(wall_seconds()))
}
