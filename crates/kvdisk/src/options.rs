//! What a disk area may use.

use std::io;
use std::path::{Path, PathBuf};

/// Bytes waiting to be written at most, unless told otherwise: a second or so of a usual disk.
const QUEUE: u64 = 64 << 20;
/// Bytes read ahead of their consumers at most, over all fetches: enough to keep a fast disk busy.
const READ_AHEAD: u64 = 64 << 20;
/// The file system keeps so many bytes free, unless told otherwise: logs and other programs must be able to go on.
const FLOOR: u64 = 2 << 30;

/// Where a disk area is and what it may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Its folder; created when missing. Only files with the names of this crate are ever touched.
    pub dir: PathBuf,
    /// Bytes of all its files together, at most.
    pub size: u64,
    /// Bytes of the file system that stay free: below that, writing stops until there is room again.
    pub floor: u64,
    /// Bytes written a second, at most; `None`: as fast as the disk takes them.
    pub write_speed: Option<u64>,
    /// Bytes waiting to be written, at most (staging memory).
    pub queue: u64,
    /// Bytes read ahead of their consumers, at most, over all fetches (staging memory). A fetch that holds nothing may
    /// always read one block more, so that none waits for another's consumer.
    pub read_ahead: u64,
    /// Percent of `size` that pinned blocks may take.
    pub pinned_percent: u8,
}

impl Options {
    /// An area of `size` bytes in `dir`, with usual limits for the rest.
    pub fn new(dir: impl Into<PathBuf>, size: u64) -> Self {
        Self {
            dir: dir.into(),
            size,
            floor: FLOOR,
            write_speed: None,
            queue: QUEUE,
            read_ahead: READ_AHEAD,
            pinned_percent: 50,
        }
    }
}

/// Why a disk area can't be opened at all. A folder that can only be read is no error: see [`Status::read_only`].
///
/// [`Status::read_only`]: crate::Status::read_only
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder is missing and can't be created, or can't be listed.
    #[error("can't use {} for keys and values: {error}; choose another folder", dir.display())]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A thread can't be started.
    #[error("can't start a thread for the disk area: {0}")]
    Thread(io::Error),
}

impl OpenError {
    pub(crate) fn folder(dir: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Folder { dir: dir.to_path_buf(), error }
    }
}
