//! Room for new blocks: the segments unused for longest go, with what is worth keeping carried over.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::active::{NewRecord, Source};
use super::batch::WhyNot;
use super::{BATCH, Writer};
use crate::folder::SegmentId;
use crate::format::{FooterLine, record_offset};
use crate::index::{Place, ShelfId, Slot};
use crate::options::Options;
use crate::reader::is_record;
use crate::staging::Buffer;

/// Segments reclaimed for one batch at most. Each makes room for a quarter of a segment or more, and a batch is no
/// larger than one.
const RECLAIMS: usize = 16;

impl Writer {
    /// Reclaims until so many blocks fit, leaving room to carry over a segment's worth.
    pub(super) fn make_room(&mut self, shelf: ShelfId, blocks: u64) -> Result<(), WhyNot> {
        let geometry = self.geometry(shelf);
        let new = geometry.new_bytes(blocks) + geometry.segment_bytes();
        for _ in 0..RECLAIMS {
            if self.shared.lock().file_bytes(blocks).saturating_add(new) <= self.shared.options.size {
                return Ok(());
            }
            self.remove_unreadable()?;
            self.reclaim()?;
        }
        Err(WhyNot::Room)
    }

    /// Files that can't be used are the first to go.
    fn remove_unreadable(&mut self) -> io::Result<()> {
        let ids: Vec<_> = self.shared.lock().index.unreadable.keys().copied().collect();
        for id in ids {
            self.shared.folder.remove(id)?;
            self.shared.lock().index.unreadable.remove(&id);
        }
        Ok(())
    }

    /// Reclaims one segment, if there is one.
    fn reclaim(&mut self) -> io::Result<()> {
        self.expire_pins();
        let victim = self.shared.lock().index.victim();
        let Some(victim) = victim.or_else(|| self.complete_oldest()) else { return Ok(()) };
        for run in self.survivors(victim) {
            self.carry(victim, run)?;
        }
        self.remove_segment(victim)
    }

    /// What of a segment is carried over: slots beside each other, no more at once than a batch.
    fn survivors(&self, id: SegmentId) -> Vec<Range<u32>> {
        let state = self.shared.lock();
        let Some(segment) = state.index.segment(id) else { return Vec::new() };
        let longest = BATCH / state.index.shelves.stride(segment.shelf) as u64;
        runs(&state.index.survivors(id), longest.max(1) as usize)
    }

    /// Deletes a segment with all blocks that are still in it.
    fn remove_segment(&mut self, id: SegmentId) -> io::Result<()> {
        let mut state = self.shared.lock();
        let bytes = state.index.segment(id).map_or(0, |segment| segment.bytes);
        let reclaimed = state.index.remove_segment(id);
        state.counters.reclaimed_blocks += reclaimed;
        drop(state);
        let removed = self.shared.folder.remove(id);
        self.shared.handles.close(id);
        if removed.is_err() {
            // The file still takes room.
            self.shared.lock().index.unreadable.insert(id, bytes);
        }
        removed
    }

    /// Writes blocks that lie beside each other into the shelf's active segment, as far as the area has room.
    fn carry(&mut self, from: SegmentId, run: Range<u32>) -> io::Result<()> {
        let Some(run) = self.slots(from, run) else { return Ok(()) };
        let Ok(file) = self.shared.handles.open(&self.shared.folder, from) else { return Ok(()) };
        let mut memory = Buffer::new(run.slots.len() * run.stride);
        let offset = record_offset(run.first, run.stride);
        let read = file.read_at(memory.bytes_mut(), offset).unwrap_or(0);
        let mut records = run.intact(&Arc::new(memory), read);
        while !records.is_empty() && self.has_room_to_carry(run.shelf, records.len() as u64) {
            self.activate(run.shelf)?;
            let later = records.split_off(records.len().min(self.room(run.shelf)));
            let (to, carried) = self.append(run.shelf, records)?;
            self.note_carried(to, &carried);
            records = later;
        }
        Ok(())
    }

    fn note_carried(&self, to: SegmentId, records: &[NewRecord]) {
        let mut state = self.shared.lock();
        for record in records {
            let NewRecord { key, used, used_at, ref source } = *record;
            let is_live = matches!(source, Source::Carried(from, ..) if state.index.is_live(*from));
            state.index.append(to, &FooterLine { key, used, used_at, is_live });
        }
        state.counters.carried_blocks += records.len() as u64;
    }

    fn has_room_to_carry(&self, shelf: ShelfId, blocks: u64) -> bool {
        let Options { size, floor, .. } = self.shared.options;
        let new = self.geometry(shelf).new_bytes(blocks);
        let fits = self.shared.lock().file_bytes(blocks).saturating_add(new) <= size;
        fits && self.shared.folder.free_bytes().is_none_or(|free| free >= floor.saturating_add(new))
    }

    fn slots(&self, from: SegmentId, run: Range<u32>) -> Option<Run> {
        let state = self.shared.lock();
        let segment = state.index.segment(from)?;
        Some(Run {
            segment: from,
            shelf: segment.shelf,
            nonce: segment.nonce,
            first: run.start,
            slots: segment.slots().get(run.start as usize..run.end as usize)?.to_vec(),
            block_bytes: state.index.shelves.spec(segment.shelf).block_bytes,
            stride: state.index.shelves.stride(segment.shelf),
        })
    }
}

/// Slots beside each other that are carried over.
struct Run {
    segment: SegmentId,
    shelf: ShelfId,
    nonce: u64,
    first: u32,
    slots: Vec<Slot>,
    block_bytes: usize,
    stride: usize,
}

impl Run {
    /// The records among the bytes read that are what they should be.
    fn intact(&self, memory: &Arc<Buffer>, read: usize) -> Vec<NewRecord> {
        let whole = read / self.stride;
        let records = (self.first..).zip(&self.slots).take(whole).enumerate();
        let record = |(at, (slot, block)): (usize, (u32, &Slot))| {
            let range = at * self.stride..(at + 1) * self.stride;
            let bytes = &memory.bytes()[range.clone()];
            let place = Place { segment: self.segment, slot };
            let source = Source::Carried(place, Arc::clone(memory), range);
            is_record(bytes, self.nonce, slot, self.block_bytes, &block.key).then_some(NewRecord {
                key: block.key,
                used: block.used,
                used_at: block.used_at,
                source,
            })
        };
        records.filter_map(record).collect()
    }
}

/// Slots in order as ranges of neighbours.
fn runs(slots: &[u32], longest: usize) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for &slot in slots {
        match runs.last_mut() {
            Some(run) if run.end == slot && run.len() < longest => run.end += 1,
            _ => runs.push(slot..slot + 1),
        }
    }
    runs
}
