//! The segments that are being written: begun, completed, given up.

use std::io;

use super::active::Active;
use super::{ACTIVE, Writer};
use crate::folder::SegmentId;
use crate::geometry::Geometry;
use crate::index::{Segment, ShelfId, Slot};

impl Writer {
    /// How large segments of this shelf are.
    pub(super) fn geometry(&self, shelf: ShelfId) -> Geometry {
        let block_bytes = self.shared.lock().index.shelves.spec(shelf).block_bytes;
        Geometry::new(self.shared.options.size, block_bytes)
    }

    /// Makes sure that the shelf has a segment with room for a block.
    pub(super) fn activate(&mut self, shelf: ShelfId) -> io::Result<()> {
        if self.active.get(&shelf).is_some_and(|active| active.room() > 0) {
            return Ok(());
        }
        self.complete_segment(shelf);
        if self.active.len() >= ACTIVE {
            self.complete_oldest();
        }
        self.begin_segment(shelf)
    }

    /// Begins a segment for a shelf.
    fn begin_segment(&mut self, shelf: ShelfId) -> io::Result<()> {
        let spec = self.shared.lock().index.shelves.spec(shelf).clone();
        let slots = self.geometry(shelf).slots;
        let id = self.next_id;
        self.next_id = SegmentId(id.0 + 1);
        let active = Active::create(&self.shared.folder, id, &spec, slots).inspect_err(|_| {
            let _ = self.shared.folder.remove(id);
        })?;
        self.shared.folder.sync()?;
        let mut segment = Segment::new(shelf, active.nonce, slots as usize);
        segment.bytes = active.bytes();
        segment.reserve = active.reserve();
        segment.is_active = true;
        self.shared.lock().index.add_segment(id, segment);
        self.active.insert(shelf, active);
        Ok(())
    }

    /// Completes a shelf's segment: nothing is added to it any more.
    pub(super) fn complete_segment(&mut self, shelf: ShelfId) {
        let Some(active) = self.active.remove(&shelf) else { return };
        let id = active.id;
        let lines: Vec<_> = match self.shared.lock().index.segment(id) {
            Some(segment) => segment.slots().iter().map(Slot::line).collect(),
            None => return,
        };
        let before = active.bytes();
        let completed = active.complete(&lines);
        let mut state = self.shared.lock();
        if let Some(segment) = state.index.segment_mut(id) {
            segment.is_active = false;
            segment.is_complete = completed.is_ok();
            // After an error nobody knows how much of the footer is there.
            segment.bytes = *completed.as_ref().unwrap_or(&(before + segment.reserve));
            segment.reserve = 0;
        }
        drop(state);
        if let Err(error) = completed {
            self.stop_after(&error);
        }
    }

    /// Makes what was written survive a loss of power.
    pub(super) fn sync(&mut self) {
        let failed = self.active.values_mut().find_map(|active| active.sync().err());
        if let Some(error) = failed {
            self.stop_after(&error);
        }
    }

    /// Completes the active segment that was begun first: it can be reclaimed then.
    pub(super) fn complete_oldest(&mut self) -> Option<SegmentId> {
        let (&shelf, active) = self.active.iter().min_by_key(|(_, active)| active.id)?;
        let id = active.id;
        self.complete_segment(shelf);
        Some(id)
    }

    /// Adds nothing more to a shelf's segment, and leaves it as it is: its records are found one by one.
    pub(super) fn abandon_segment(&mut self, shelf: ShelfId) {
        let Some(active) = self.active.remove(&shelf) else { return };
        let mut state = self.shared.lock();
        if let Some(segment) = state.index.segment_mut(active.id) {
            segment.is_active = false;
            segment.reserve = 0;
        }
    }

    pub(super) fn abandon_all(&mut self) {
        let shelves: Vec<_> = self.active.keys().copied().collect();
        for shelf in shelves {
            self.abandon_segment(shelf);
        }
    }
}
