//! Open segments.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::folder::{Folder, SegmentFile, SegmentId};

/// Segments open at a time at most: far below what a process may open.
const OPEN: usize = 128;

/// Segments that were read lately stay open. A segment that is deleted must be closed, or its space is not freed.
#[derive(Default)]
pub(crate) struct Handles {
    open: Mutex<HashMap<SegmentId, Arc<SegmentFile>>>,
}

impl Handles {
    fn lock(&self) -> MutexGuard<'_, HashMap<SegmentId, Arc<SegmentFile>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open(&self, folder: &Folder, id: SegmentId) -> io::Result<Arc<SegmentFile>> {
        if let Some(file) = self.lock().get(&id) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(SegmentFile::open(&folder.segment(id))?);
        let mut open = self.lock();
        if open.len() >= OPEN {
            // Any will do: opening again costs little beside reading.
            let any = open.keys().next().copied();
            any.and_then(|id| open.remove(&id));
        }
        open.insert(id, Arc::clone(&file));
        Ok(file)
    }

    pub(crate) fn close(&self, id: SegmentId) {
        self.lock().remove(&id);
    }

    pub(crate) fn keep(&self, is_known: impl Fn(SegmentId) -> bool) {
        self.lock().retain(|&id, _| is_known(id));
    }

    pub(crate) fn close_all(&self) {
        self.lock().clear();
    }
}
