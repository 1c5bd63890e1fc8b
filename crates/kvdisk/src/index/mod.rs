//! Which blocks are where, in memory: the only thing that `holds` and `leading` look at.
//!
//! ```text
//! places: hash of (shelf, key) -> (segment, slot)        9 bytes a block, at a load of 44 to 88 %
//! segments: id -> slots: key, last use, flags            48 bytes a block
//! ```
//!
//! Last use is logical time, a number that only grows: a clock that jumps changes nothing. The wall time beside it is for
//! people. Everything else can be read from the segment files again.

mod pins;
mod reclaim;
mod segment;
mod shelves;

use std::collections::HashMap;

use hashbrown::HashTable;

use crate::Key;
use crate::folder::SegmentId;
use crate::format::FooterLine;
use crate::shelf::ShelfSpec;

pub(crate) use pins::{Pin, Pins};
pub(crate) use segment::{Segment, Slot};
pub(crate) use shelves::{ShelfId, Shelves};

/// Times beyond this come from a damaged or hostile file: they count as long ago.
const LAST_TIME: u64 = 1 << 62;
/// Room made for places at once at most: 9 MiB.
const ROOM: usize = 1 << 20;

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: SegmentId,
    pub(crate) slot: u32,
}

/// All blocks of all shelves.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) shelves: Shelves,
    pub(crate) pins: Pins,
    segments: HashMap<SegmentId, Segment>,
    places: HashTable<Place>,
    /// Files that are named as segments and can't be read, with their lengths: the first to be reclaimed.
    pub(crate) unreadable: HashMap<SegmentId, u64>,
    /// Logical time.
    now: u64,
    /// Sum of the last uses of all live blocks.
    used_sum: u128,
}

impl Index {
    pub(crate) fn find(&self, shelf: ShelfId, key: &Key) -> Option<Place> {
        let is_it = |place: &Place| {
            let segment = &self.segments[&place.segment];
            segment.shelf == shelf && segment.slot(place.slot).key == *key
        };
        self.places.find(hash(shelf, key), is_it).copied()
    }

    pub(crate) fn segment(&self, id: SegmentId) -> Option<&Segment> {
        self.segments.get(&id)
    }

    pub(crate) fn segment_mut(&mut self, id: SegmentId) -> Option<&mut Segment> {
        self.segments.get_mut(&id)
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        self.segments.iter().map(|(&id, segment)| (id, segment))
    }

    /// Blocks that can be fetched.
    pub(crate) fn blocks(&self) -> u64 {
        self.places.len() as u64
    }

    /// Bytes of all segments, the unreadable ones and what active ones still need to be completed included.
    pub(crate) fn file_bytes(&self) -> u64 {
        let segments = self.segments.values().flat_map(|segment| [segment.bytes, segment.reserve]);
        // Sparse files may claim any length.
        segments.chain(self.unreadable.values().copied()).fold(0, u64::saturating_add)
    }

    /// The greatest number that any segment has.
    pub(crate) fn last_id(&self) -> Option<SegmentId> {
        self.segments.keys().chain(self.unreadable.keys()).copied().max()
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Logical time goes on from there, if it is not later already.
    pub(crate) fn advance(&mut self, time: u64) {
        if time < LAST_TIME {
            self.now = self.now.max(time);
        }
    }

    /// The next moment of logical time.
    fn tick(&mut self) -> u64 {
        self.ticks(1)
    }

    /// The first of the next so many moments.
    pub(crate) fn ticks(&mut self, moments: u64) -> u64 {
        self.now += moments;
        self.now + 1 - moments
    }

    /// The shelf of a kind of blocks; new ones are empty.
    pub(crate) fn shelf(&mut self, spec: &ShelfSpec) -> ShelfId {
        self.shelves.find_or_add(spec)
    }

    /// Makes room for so many blocks, so that the table does not grow while the engine waits for it.
    pub(crate) fn reserve(&mut self, blocks: u64) {
        let wanted = usize::try_from(blocks).unwrap_or(ROOM).min(ROOM);
        let more = wanted.saturating_sub(self.places.len());
        let Self { places, segments, .. } = self;
        places.reserve(more, |place| place_hash(segments, *place));
    }

    /// Adds a segment without slots.
    pub(crate) fn add_segment(&mut self, id: SegmentId, segment: Segment) {
        debug_assert!(segment.slots().is_empty());
        self.segments.insert(id, segment);
    }

    /// Adds the next slot of a segment. A block that is known elsewhere is here from now on.
    pub(crate) fn append(&mut self, id: SegmentId, line: &FooterLine) {
        let Some(segment) = self.segments.get_mut(&id) else { return };
        let shelf = segment.shelf;
        if !line.is_live {
            segment.push_dead();
            return;
        }
        let mut used = if line.used < LAST_TIME { line.used } else { 0 };
        if let Some(old) = self.find(shelf, &line.key) {
            used = used.max(self.slot(old).used);
            self.forget(old);
        }
        self.advance(used);
        let is_pinned = self.pins.covers(shelf, &line.key);
        let Some(segment) = self.segments.get_mut(&id) else { return };
        let slot = segment.push(Slot::new(line.key, used, line.used_at, is_pinned));
        self.used_sum += u128::from(used);
        self.shelves.count(shelf, 1);
        self.put_place(hash(shelf, &line.key), Place { segment: id, slot });
    }

    fn put_place(&mut self, hash: u64, place: Place) {
        let Self { places, segments, .. } = self;
        places.insert_unique(hash, place, |place| place_hash(segments, *place));
    }

    fn slot(&self, place: Place) -> &Slot {
        self.segments[&place.segment].slot(place.slot)
    }

    /// A block was used at that moment.
    pub(crate) fn set_used(&mut self, place: Place, used: u64, used_at: u32) {
        let Some(segment) = self.segments.get_mut(&place.segment) else { return };
        let before = segment.set_used(place.slot, used, used_at);
        self.used_sum = self.used_sum - u128::from(before) + u128::from(used);
    }

    /// A block is used now.
    pub(crate) fn touch(&mut self, place: Place, used_at: u32) {
        let now = self.tick();
        self.set_used(place, now, used_at);
    }

    /// Makes a block unknown; its slot is waste until the segment is reclaimed.
    pub(crate) fn forget(&mut self, place: Place) {
        let Some(segment) = self.segments.get_mut(&place.segment) else { return };
        let Some(slot) = segment.kill(place.slot) else { return };
        let shelf = segment.shelf;
        self.used_sum -= u128::from(slot.used);
        self.shelves.count(shelf, -1);
        if let Ok(entry) = self.places.find_entry(hash(shelf, &slot.key), |other| *other == place) {
            entry.remove();
        }
    }

    /// Makes all blocks of a segment from that slot on unknown.
    pub(crate) fn forget_from(&mut self, id: SegmentId, first: u32) -> u64 {
        let Some(segment) = self.segments.get(&id) else { return 0 };
        let slots = segment.slots().len() as u32;
        let before = segment.live();
        (first..slots).for_each(|slot| self.forget(Place { segment: id, slot }));
        u64::from(before - self.segments[&id].live())
    }

    /// Makes a segment and all its blocks unknown; says how many those were.
    pub(crate) fn remove_segment(&mut self, id: SegmentId) -> u64 {
        let forgotten = self.forget_from(id, 0);
        self.segments.remove(&id);
        forgotten
    }

    /// Pins blocks, replacing what the name stood for; says how many are within what is allowed.
    pub(crate) fn pin(&mut self, shelf: ShelfId, name: &str, pin: Pin) -> usize {
        self.unpin(shelf, name);
        self.tick();
        let stride = self.shelves.stride(shelf) as u64;
        let kept = self.pins.add(shelf, name, pin, stride);
        self.mark_pinned(shelf, kept.newly);
        kept.keys
    }

    pub(crate) fn unpin(&mut self, shelf: ShelfId, name: &str) {
        self.tick();
        let stride = self.shelves.stride(shelf) as u64;
        let released = self.pins.remove(shelf, name, stride);
        self.mark_pinned(shelf, released);
    }

    fn mark_pinned(&mut self, shelf: ShelfId, keys: Vec<Key>) {
        for key in keys {
            let Some(place) = self.find(shelf, &key) else { continue };
            let is_pinned = self.pins.covers(shelf, &key);
            if let Some(segment) = self.segments.get_mut(&place.segment) {
                segment.set_pinned(place.slot, is_pinned);
            }
        }
    }
}

/// Keys are digests already; hashing them again keeps the table sound whatever they are.
fn hash(shelf: ShelfId, key: &Key) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, u64::from(shelf.0))
}

fn place_hash(segments: &HashMap<SegmentId, Segment>, place: Place) -> u64 {
    let segment = &segments[&place.segment];
    hash(segment.shelf, &segment.slot(place.slot).key)
}

#[cfg(test)]
mod tests;
