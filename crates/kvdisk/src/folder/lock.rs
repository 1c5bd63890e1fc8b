//! One process at a time writes to a folder.
//!
//! The lock is an advisory one on an open file: the system releases it when the process ends, however it ends.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use super::Folder;

/// Held until dropped.
#[derive(Debug)]
pub(crate) struct FolderLock {
    file: File,
}

/// Why a folder can't be written to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotLocked {
    #[error("another process writes to this folder; blocks are read from it only")]
    Taken,
    #[error("the folder can't be written to ({0}); blocks are read from it only")]
    Refused(#[from] io::Error),
}

impl FolderLock {
    pub(crate) fn take_in(folder: &Folder) -> Result<Self, NotLocked> {
        fs::create_dir_all(folder.dir())?;
        let file = File::options().create(true).truncate(false).write(true).open(folder.lock())?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(TryLockError::WouldBlock) => Err(NotLocked::Taken),
            Err(TryLockError::Error(error)) => Err(NotLocked::Refused(error)),
        }
    }

    /// Whether a process writes to a folder now.
    pub(crate) fn is_taken(folder: &Folder) -> bool {
        // Opened for reading, so that looking creates nothing and works without the right to write.
        let file = File::open(folder.lock());
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Whether the file at that path is the one that is locked: the folder may have been deleted and made anew.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
            self.file.metadata().and_then(|mine| Ok(same(mine, fs::metadata(path)?))).unwrap_or(false)
        }
        #[cfg(not(unix))]
        {
            let _ = &self.file;
            path.exists()
        }
    }
}
