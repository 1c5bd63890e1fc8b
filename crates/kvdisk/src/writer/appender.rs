//! The thread that computes checksums and writes, at low priority: blocks can wait, the model can't.
//!
//! It takes no lock. If the writer itself gave way, a busy machine could stop it for long while it holds the index, and the
//! engine would wait for it.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::active::{Active, NewRecord};

/// Niceness of a thread that gives way: Linux weighs it at one in seventy of others.
#[cfg(target_os = "linux")]
const NICE: i32 = 19;

/// Records to be added to a segment; both come back.
pub(super) struct Append {
    pub(super) active: Active,
    pub(super) records: Vec<NewRecord>,
    pub(super) result: io::Result<()>,
}

impl Append {
    fn perform(mut self) -> Self {
        self.result = self.active.append(&self.records);
        self
    }
}

/// The thread, while there is something to write for.
pub(super) struct Appender {
    running: Option<Running>,
}

struct Running {
    tasks: SyncSender<Append>,
    done: Receiver<Append>,
    thread: JoinHandle<()>,
}

impl Appender {
    /// Starts the thread; where that fails, appends are performed by the caller.
    pub(super) fn start() -> Self {
        let (tasks, next) = sync_channel::<Append>(1);
        let (finished, done) = sync_channel(1);
        let work = move || {
            give_way();
            // Ends when the other side has.
            while let Ok(append) = next.recv() {
                let _ = finished.send(append.perform());
            }
        };
        let thread = thread::Builder::new().name("kv-append".into()).spawn(work);
        Self { running: thread.ok().map(|thread| Running { tasks, done, thread }) }
    }

    /// Adds records to a segment, which must have room for them.
    pub(super) fn append(&self, active: Active, records: Vec<NewRecord>) -> Option<Append> {
        let append = Append { active, records, result: Ok(()) };
        let Some(Running { tasks, done, .. }) = &self.running else { return Some(append.perform()) };
        match tasks.send(append) {
            Ok(()) => done.recv().ok(),
            Err(refused) => Some(refused.0.perform()),
        }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        if let Some(Running { tasks, thread, .. }) = self.running.take() {
            drop(tasks);
            let _ = thread.join();
        }
    }
}

/// Lowers this thread's priority where the system lets it.
fn give_way() {
    // On Linux a thread has its own niceness; elsewhere the whole process would get it.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICE);
}
