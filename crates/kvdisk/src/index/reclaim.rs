//! Which segment goes when room is needed, and which of its blocks are carried over.
//!
//! The segment whose average slot was used longest ago goes: wasted slots count as never used, so a segment that is mostly
//! waste goes early. Of its blocks, pinned ones are carried over, and those used later than the average block of the whole
//! area (a second chance); the latter only while at most half of the segment is carried, so that room is made.

use super::{Index, Place, Segment};
use crate::folder::SegmentId;

impl Index {
    /// The segment to reclaim next.
    pub(crate) fn victim(&self) -> Option<SegmentId> {
        let candidates = || self.segments().filter(|(_, segment)| !segment.is_active);
        let oldest = candidates()
            .filter(|(_, segment)| frees_enough(segment))
            .min_by_key(|&(id, segment)| (segment.mean_use(), id));
        let least_pinned = || candidates().min_by_key(|&(id, segment)| (segment.pinned(), id));
        oldest.or_else(least_pinned).map(|(id, _)| id)
    }

    /// The slots of a segment that are worth carrying over, in their order.
    pub(crate) fn survivors(&self, id: SegmentId) -> Vec<u32> {
        let Some(segment) = self.segment(id) else { return Vec::new() };
        let slots = || (0_u32..).zip(segment.slots());
        let mut survivors: Vec<u32> = slots().filter(|(_, slot)| slot.is_pinned).map(|(n, _)| n).collect();
        let chances = (segment.slots().len() / 2).saturating_sub(survivors.len());
        let lately = self.mean_use();
        let mut others: Vec<_> = slots()
            .filter(|(_, slot)| slot.is_live && !slot.is_pinned && slot.used > lately)
            .map(|(n, slot)| (slot.used, n))
            .collect();
        others.sort_unstable_by(|a, b| b.cmp(a));
        survivors.extend(others.iter().take(chances).map(|&(_, n)| n));
        survivors.sort_unstable();
        survivors
    }

    /// Whether a block is still where it was when it was chosen.
    pub(crate) fn is_live(&self, place: Place) -> bool {
        let segment = self.segment(place.segment);
        segment.and_then(|segment| segment.slots().get(place.slot as usize)).is_some_and(|slot| slot.is_live)
    }

    /// Last use of the average block.
    fn mean_use(&self) -> u64 {
        (self.used_sum / u128::from(self.blocks().max(1))) as u64
    }
}

/// Whether reclaiming makes room although pinned blocks are carried over.
fn frees_enough(segment: &Segment) -> bool {
    u64::from(segment.pinned()) * 4 <= segment.slots().len() as u64 * 3
}
