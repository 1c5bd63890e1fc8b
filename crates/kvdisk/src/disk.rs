//! One area on disk.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::folder::FolderLock;
use crate::load::{Ignored, load};
use crate::options::{OpenError, Options};
use crate::reader;
use crate::shared::{End, Shared, State};
use crate::shelf::{Shelf, ShelfSpec};
use crate::status::{Counters, Status};
use crate::writer::{self, Writer};

/// Time that completing the files takes, usually far less.
const COMPLETING: Duration = Duration::from_millis(500);

/// One area on disk, shared by all models of the process. Cheap to clone.
///
/// The threads end with [`Disk::close`], or when the last clone and the last [`Shelf`] are dropped.
#[derive(Clone)]
pub struct Disk {
    running: Arc<Running>,
}

impl Disk {
    /// Opens the area in a folder and finds what is there; [`Disk::status`] says what. A folder that another process
    /// writes to, or that can't be written to, is opened for reading; when that process ends, this one takes over.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let shared = Arc::new(Shared::new(options));
        let lock = FolderLock::take_in(&shared.folder);
        find(&shared).map_err(OpenError::folder(&shared.options.dir))?;
        let lock = match lock {
            Ok(lock) => {
                writer::shrink(&shared);
                Some(lock)
            }
            Err(why) => {
                tracing::warn!(target: "kvdisk", %why, "the folder is only read");
                shared.lock().read_only = Some(why.to_string());
                None
            }
        };
        let running = Running { threads: Mutex::default(), shared };
        running.start(lock).map_err(OpenError::Thread)?;
        Ok(Self { running: Arc::new(running) })
    }

    pub(crate) fn of(running: Arc<Running>) -> Self {
        Self { running }
    }

    /// The blocks of one model in one format.
    ///
    /// # Panics
    /// When blocks are empty or larger than 1 GiB.
    pub fn shelf(&self, spec: ShelfSpec) -> Shelf {
        Shelf::new(Arc::clone(&self.running), spec)
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.running.shared.options.dir
    }

    /// What it holds, does and can't do.
    pub fn status(&self) -> Status {
        self.running.shared.status()
    }

    /// Waits until everything that is queued now is on disk (synced), at most so long; whether it is. Blocks that were
    /// given up before are not queued. Does not keep to `write_speed`.
    pub fn flush(&self, within: Duration) -> bool {
        let mut state = self.running.shared.lock();
        let target = state.flushes.entered;
        state.flushes.wanted = target;
        let lost = |counters: Counters| (counters.dropped_blocks, counters.write_failures);
        let lost_before = lost(state.counters);
        drop(state);
        let is_done = self.running.ask(within, |state| state.flushes.synced >= target);
        is_done && lost(self.running.shared.lock().counters) == lost_before
    }

    /// Looks at the folder now instead of within five seconds: others may have deleted or added segments.
    pub fn refresh(&self, within: Duration) -> bool {
        let mut state = self.running.shared.lock();
        state.refreshes.asked += 1;
        let number = state.refreshes.asked;
        drop(state);
        self.running.ask(within, |state| state.refreshes.done >= number)
    }

    /// Writes what is queued, completes the files and gives the folder free, within about that time. Nothing is stored or
    /// fetched afterwards. Without it, what was queued is lost and the next process has a little more to look through.
    pub fn close(&self, within: Duration) {
        self.running.close(within);
    }
}

/// Finds what is in the folder.
fn find(shared: &Shared) -> io::Result<()> {
    let mut state = shared.lock();
    let loaded = load(&shared.folder, &mut state.index)?;
    let has_blocks = state.index.blocks() > 0;
    drop(state);
    for Ignored { id, why, .. } in loaded.ignored {
        tracing::warn!(target: "kvdisk", file = id.file_name(), %why, "a segment is ignored");
    }
    if has_blocks && !loaded.has_snapshot {
        tracing::info!(target: "kvdisk", "the index is missing or damaged: blocks count as used when written");
    }
    Ok(())
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("options", &self.running.shared.options).finish_non_exhaustive()
    }
}

/// The threads, and what they share with callers.
pub(crate) struct Running {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Running {
    fn start(&self, lock: Option<FolderLock>) -> io::Result<()> {
        let writer = Writer::new(Arc::clone(&self.shared), lock);
        let ended = WriterEnded(Arc::clone(&self.shared));
        self.spawn("kv-writer", move || {
            let _ended = ended;
            writer.run();
        })?;
        for _ in 0..reader::THREADS {
            let shared = Arc::clone(&self.shared);
            self.spawn("kv-reader", move || reader::run(&shared))?;
        }
        Ok(())
    }

    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = thread::Builder::new().name(name.into()).spawn(work)?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Wakes the writer and waits until it has done something, or has ended; whether it did so in time.
    fn ask(&self, within: Duration, is_done: impl Fn(&State) -> bool) -> bool {
        self.shared.writer_wake.notify_one();
        self.wait(within, |state| is_done(state) || state.has_ended)
    }

    fn wait(&self, within: Duration, is_done: impl Fn(&State) -> bool) -> bool {
        let state = self.shared.lock();
        let waited = self.shared.served.wait_timeout_while(state, within, |state| !is_done(state));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn close(&self, within: Duration) {
        // A part of the time is kept for completing the files.
        let until = Instant::now() + within.saturating_sub(COMPLETING.min(within / 4));
        self.shared.lock().end = Some(End::Orderly(until));
        let is_done = self.ask(within, |state| state.has_ended);
        self.shared.readers.end();
        self.shared.handles.close_all();
        if is_done {
            self.join();
        } else {
            tracing::warn!(target: "kvdisk", "closed before everything was written: the time was over");
        }
    }

    fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let me = thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != me) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.lock().end.get_or_insert(End::Abrupt);
        self.shared.writer_wake.notify_one();
        self.shared.readers.end();
        self.join();
    }
}

/// Notes the end of the writer, however it ends: nothing is queued any more, nobody waits for it.
struct WriterEnded(Arc<Shared>);

impl Drop for WriterEnded {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.end.get_or_insert(End::Abrupt);
        state.has_ended = true;
        let dropped = state.drop_queue();
        drop(state);
        drop(dropped);
        self.0.served.notify_all();
    }
}
