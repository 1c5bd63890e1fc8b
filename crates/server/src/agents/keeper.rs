//! Writes agents to their folder as they change, on a thread of its own: nobody waits for a disk.

use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ropeway_kvdisk::Disk;

use super::folder::AgentFolder;
use super::id::AgentKey;
use super::registry::{Registry, State};

/// The thread that writes. It ends when this is dropped, after what is there to be written.
#[derive(Debug)]
pub struct Keeper {
    registry: Arc<Registry>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Writes what changes in `registry` into the disk area's folder, while this process is the one that writes there.
    pub fn start(registry: &Arc<Registry>, folder: AgentFolder, disk: Disk) -> Self {
        let shared = Arc::clone(registry);
        let thread = thread::Builder::new()
            .name("agents".into())
            .spawn(move || {
                while let Some(key) = next(&shared) {
                    if disk.status().read_only.is_none() {
                        write(&shared, &folder, &key);
                    }
                    shared.lock().is_writing = false;
                    shared.changed.notify_all();
                }
            })
            .inspect_err(
                |error| tracing::error!(target: "agents", %error, "agents can't be written to disk"),
            );
        registry.lock().is_kept = thread.is_ok();
        Self { registry: Arc::clone(registry), thread: thread.ok() }
    }

    /// Waits until everything is written, at most so long; whether it is.
    pub fn flush(&self, within: Duration) -> bool {
        let state = self.registry.lock();
        let waited = self
            .registry
            .changed
            .wait_timeout_while(state, within, |state| !state.unwritten.is_empty() || state.is_writing);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.registry.lock().is_over = true;
        self.registry.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Waits for an agent that is to be written; `None` at the end.
fn next(registry: &Registry) -> Option<AgentKey> {
    let state = registry.lock();
    let is_idle = |state: &mut State| state.unwritten.is_empty() && !state.is_over;
    let mut state = registry.changed.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner);
    let key = state.unwritten.pop_first()?;
    state.is_writing = true;
    Some(key)
}

fn write(registry: &Registry, folder: &AgentFolder, key: &AgentKey) {
    let agent = registry.lock().to_write(key);
    let written = match &agent {
        Some(agent) => folder.save(key, agent),
        None => folder.remove(key),
    };
    if let Err(error) = written {
        tracing::warn!(target: "agents", id = %key.id, %error, "an agent could not be written to disk");
    }
}
