//! The segments that are being written: begun, completed, given up.

use std::io;

use super::active::{Active, NewRecord};
use super::appender::Append;
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
        if self.room(shelf) > 0 {
            return Ok(());
        }
        self.complete_segment(shelf);
        if self.active.len() >= ACTIVE {
            self.complete_oldest();
        }
        self.begin_segment(shelf)
    }

    /// Slots that the shelf's active segment has left.
    pub(super) fn room(&self, shelf: ShelfId) -> usize {
        self.active.get(&shelf).map_or(0, Active::room)
    }

    /// Adds records to the shelf's active segment, which has room for them; returns which that is, and the records. After
    /// an error nothing more is added to that segment: another file may work.
    pub(super) fn append(
        &mut self,
        shelf: ShelfId,
        records: Vec<NewRecord>,
    ) -> io::Result<(SegmentId, Vec<NewRecord>)> {
        let active = self.active.remove(&shelf).ok_or_else(|| io::Error::other("no segment is active"))?;
        let id = active.id;
        let error = match self.appender.append(active, records) {
            Some(Append { active, records, result: Ok(()) }) => {
                self.change_segment(id, |segment| segment.bytes = active.bytes());
                self.active.insert(shelf, active);
                return Ok((id, records));
            }
            Some(Append { result: Err(error), .. }) => error,
            None => io::Error::other("a thread has ended"),
        };
        self.change_segment(id, Segment::abandon);
        Err(error)
    }

    fn change_segment(&self, id: SegmentId, change: impl FnOnce(&mut Segment)) {
        if let Some(segment) = self.shared.lock().index.segment_mut(id) {
            change(segment);
        }
    }

    /// Begins a segment for a shelf.
    fn begin_segment(&mut self, shelf: ShelfId) -> io::Result<()> {
        let spec = self.shared.lock().index.shelves.spec(shelf).clone();
        let slots = self.geometry(shelf).slots;
        let id = self.next_id;
        if !id.is_valid() {
            return Err(io::Error::other("no numbers are left for files: delete this folder"));
        }
        self.next_id = id.next();
        let active = Active::create(&self.shared.folder, id, &spec, slots)?;
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
        self.change_segment(id, |segment| {
            // After an error nobody knows how much of the footer is there.
            segment.bytes = *completed.as_ref().unwrap_or(&(before + segment.reserve));
            segment.is_complete = completed.is_ok();
            segment.abandon();
        });
        if let Err(error) = completed {
            self.stop_after(&error);
        }
    }

    /// Makes what was written survive a loss of power.
    pub(super) fn sync(&mut self) {
        let left = self.shared.lock().flushes.left;
        let failed = self.active.values_mut().find_map(|active| active.sync().err());
        if let Some(error) = failed {
            self.stop_after(&error);
        }
        self.shared.lock().flushes.synced = left;
        self.shared.served.notify_all();
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
        self.change_segment(active.id, Segment::abandon);
    }

    pub(super) fn abandon_all(&mut self) {
        let shelves: Vec<_> = self.active.keys().copied().collect();
        for shelf in shelves {
            self.abandon_segment(shelf);
        }
    }
}
