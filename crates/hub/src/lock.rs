//! One holder at a time for each model, across processes.
//!
//! A lock is an advisory lock on an open file: the system releases it when the holder ends, however it ends, so no
//! crash leaves a model locked.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;

use crate::cancel::Cancel;
use crate::error::HubError;

/// How often a lock that someone else holds is tried: seldom enough to cost nothing, often enough that nobody notices.
const GLANCE: Duration = Duration::from_millis(50);

/// Held until dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock at `path`, calling `on_wait` once when someone else holds it; waits until it is free or `cancel` is
    /// given.
    pub(crate) fn acquire(path: &Path, cancel: &Cancel, on_wait: impl FnOnce()) -> Result<Lock, HubError> {
        let file = open(path)?;
        let mut on_wait = Some(on_wait);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(HubError::io("lock", path)(error)),
            }
            if let Some(on_wait) = on_wait.take() {
                on_wait();
            }
            cancel.pause(GLANCE).map_err(|_| HubError::Cancelled)?;
        }
    }

    /// Takes the lock at `path` if nobody holds it.
    pub(crate) fn try_acquire(path: &Path) -> Option<Lock> {
        let file = open(path).ok()?;
        file.try_lock().ok().map(|()| Lock { _file: file })
    }
}

fn open(path: &Path) -> Result<File, HubError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(HubError::io("create the folder", folder))?;
    }
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    options.open(path).map_err(HubError::io("open the lock", path))
}
