//! Files mapped into memory, and shared windows into them.
//!
//! Relies on the kernel to page bytes in when they are touched and on nobody truncating the file meanwhile. Must never
//! hand out a window that reaches past the end of its file.
#![allow(unsafe_code)] // mmap and madvise have no safe form

use crate::WeightsError;
use memmap2::Mmap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// One read-only mapped file.
#[derive(Debug)]
pub(crate) struct Mapping(Mmap);

impl Mapping {
    /// Maps a regular file; anything else (a pipe, a device, a folder) is refused before it is opened.
    pub(crate) fn open(path: &Path) -> Result<Arc<Mapping>, WeightsError> {
        let unreadable = |source| WeightsError::Unreadable { path: path.to_owned(), source };
        if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(WeightsError::NotAFile { path: path.to_owned() });
        }
        let file = File::open(path).map_err(unreadable)?;
        // SAFETY: the map is read-only and private. Another process rewriting the file could still change the bytes
        // under us; every length and offset is read once and then kept, and strings are validated again on each use, so
        // changed bytes give other numbers, not other addresses. Truncation would raise SIGBUS: the crate docs say so.
        let map = unsafe { Mmap::map(&file) }.map_err(unreadable)?;
        Ok(Arc::new(Mapping(map)))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Lets the kernel drop the pages read so far; touching them again reads the file again.
    pub(crate) fn release(&self) {
        // SAFETY: the map is file-backed and never written, so a dropped page comes back with the file's bytes.
        // A refusal only means the pages stay resident, which is no error.
        #[cfg(unix)]
        let _ = unsafe { self.0.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
    }
}

/// A window into a mapped file that keeps the file mapped.
#[derive(Debug, Clone)]
pub(crate) struct Region {
    mapping: Arc<Mapping>,
    range: Range<usize>,
}

impl Region {
    /// The window, or `None` where it would leave the file.
    pub(crate) fn new(mapping: &Arc<Mapping>, range: Range<usize>) -> Option<Region> {
        mapping.bytes().get(range.clone())?;
        Some(Region { mapping: Arc::clone(mapping), range })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.mapping.bytes()[self.range.clone()]
    }

    /// Row `row` of a window that holds rows of `row_bytes` each.
    pub(crate) fn row(&self, row: usize, row_bytes: usize) -> &[u8] {
        &self.bytes()[row * row_bytes..][..row_bytes]
    }

    /// The window over some of the rows.
    pub(crate) fn rows(&self, rows: &Range<usize>, row_bytes: usize) -> Region {
        let start = self.range.start + rows.start * row_bytes;
        let range = start..start + rows.len() * row_bytes;
        debug_assert!(range.end <= self.range.end);
        Region { mapping: Arc::clone(&self.mapping), range }
    }
}
