//! How large segments are.

use crate::format::{MAX_SLOTS, PAGE, footer_bytes, record_offset, stride};

/// Segments are this part of the area: small enough that reclaiming one gives up little at once.
const PART: u64 = 32;
/// And no larger than this: carrying over its blocks stays a matter of a second.
const LARGEST: u64 = 256 << 20;

/// Segments that must fit at least: one to write, one to carry over to, two to keep.
const FEWEST: u64 = 4;

/// How large segments are in an area of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) slots: u32,
    stride: usize,
}

impl Geometry {
    pub(crate) fn new(size: u64, block_bytes: usize) -> Self {
        let stride = stride(block_bytes);
        let room = (size / PART).min(LARGEST).saturating_sub(2 * PAGE as u64);
        let slots = (room / stride as u64).clamp(1, u64::from(MAX_SLOTS)) as u32;
        Self { slots, stride }
    }

    /// Bytes of the smallest area that can hold such blocks.
    pub(crate) fn smallest_area(self) -> u64 {
        FEWEST * self.segment_bytes()
    }

    /// Bytes of a full, completed segment.
    pub(crate) fn segment_bytes(self) -> u64 {
        record_offset(self.slots, self.stride) + footer_bytes(self.slots) as u64
    }

    /// Bytes that so many blocks, no more than a segment has slots, may add: a segment may have to be begun for them.
    pub(crate) fn new_bytes(self, blocks: u64) -> u64 {
        blocks * self.stride as u64 + (PAGE + footer_bytes(self.slots)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_a_small_part_of_any_area_and_never_large() {
        let block = 737_280;
        let segment = |size| Geometry::new(size, block).segment_bytes();
        assert!((100 << 20..=128 << 20).contains(&segment(4 << 30)));
        assert!((200 << 20..=256 << 20).contains(&segment(1 << 40)));
        // Blocks that hardly fit are segments of their own.
        assert_eq!(Geometry::new(4 << 20, block).slots, 1);
        assert!(Geometry::new(4 << 20, block).smallest_area() <= 4 << 20);
        assert!(Geometry::new(2 << 20, block).smallest_area() > 2 << 20);
        // Small blocks don't make a segment's list long.
        assert_eq!(Geometry::new(1 << 40, 100).slots, MAX_SLOTS);
    }
}
