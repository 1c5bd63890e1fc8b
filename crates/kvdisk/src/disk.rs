//! One area on disk.

use std::time::Duration;

use crate::options::{OpenError, Options};
use crate::shelf::{Shelf, ShelfSpec};
use crate::status::Status;

/// One area on disk, shared by all models of the process. Cheap to clone.
#[derive(Clone)]
pub struct Disk {
    options: Options,
}

impl Disk {
    /// Opens the area in a folder and finds what is there; [`Disk::status`] says what. A folder that another process
    /// writes to, or that can't be written to, is opened for reading.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        std::fs::create_dir_all(&options.dir).map_err(OpenError::folder(&options.dir))?;
        Ok(Self { options })
    }

    /// The blocks of one model in one format.
    pub fn shelf(&self, spec: ShelfSpec) -> Shelf {
        Shelf::new(spec)
    }

    /// What it holds, does and can't do.
    pub fn status(&self) -> Status {
        Status { size: self.options.size, ..Status::default() }
    }

    /// Waits until everything queued is on disk (synced), at most so long; whether it is.
    pub fn flush(&self, _within: Duration) -> bool {
        true
    }

    /// Flushes, completes the files and gives the folder free, within about that time. Nothing is stored or fetched
    /// afterwards. Without it, what was queued is lost and the next process has a little more to look through.
    pub fn close(&self, within: Duration) {
        self.flush(within);
    }
}
