//! A segment as the index knows it.

use super::ShelfId;
use crate::Key;
use crate::format::FooterLine;

/// A place for a block in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) key: Key,
    /// Logical time of the last use.
    pub(crate) used: u64,
    /// The same in seconds since 1970; for people.
    pub(crate) used_at: u32,
    pub(crate) is_live: bool,
    pub(crate) is_pinned: bool,
}

impl Slot {
    pub(crate) fn new(key: Key, used: u64, used_at: u32, is_pinned: bool) -> Self {
        Self { key, used, used_at, is_live: true, is_pinned }
    }

    pub(crate) fn line(&self) -> FooterLine {
        FooterLine { key: self.key, used: self.used, used_at: self.used_at, is_live: self.is_live }
    }
}

/// The index has one for every block.
const _: () = assert!(size_of::<Slot>() == 48);

/// A segment file and what is in it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) shelf: ShelfId,
    pub(crate) nonce: u64,
    /// Length of the file.
    pub(crate) bytes: u64,
    /// Bytes that completing it will add.
    pub(crate) reserve: u64,
    /// This process adds to it: it is not reclaimed.
    pub(crate) is_active: bool,
    /// It has a footer: nobody adds to it.
    pub(crate) is_complete: bool,
    slots: Vec<Slot>,
    live: u32,
    pinned: u32,
    /// Sum of the last uses of live slots.
    used_sum: u128,
}

impl Segment {
    /// A segment with room for so many slots, all of them to come.
    pub(crate) fn new(shelf: ShelfId, nonce: u64, slots: usize) -> Self {
        Self {
            shelf,
            nonce,
            bytes: 0,
            reserve: 0,
            is_active: false,
            is_complete: false,
            slots: Vec::with_capacity(slots),
            live: 0,
            pinned: 0,
            used_sum: 0,
        }
    }

    /// Nothing more is added to it, and it is not completed.
    pub(crate) fn abandon(&mut self) {
        self.is_active = false;
        self.reserve = 0;
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(crate) fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    /// Slots whose block can be fetched.
    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    pub(crate) fn pinned(&self) -> u32 {
        self.pinned
    }

    /// Last use of the average slot; dead ones count as never used.
    pub(crate) fn mean_use(&self) -> u64 {
        (self.used_sum / (self.slots.len().max(1) as u128)) as u64
    }

    pub(super) fn push(&mut self, slot: Slot) -> u32 {
        self.live += 1;
        self.pinned += u32::from(slot.is_pinned);
        self.used_sum += u128::from(slot.used);
        self.slots.push(slot);
        self.slots.len() as u32 - 1
    }

    pub(super) fn push_dead(&mut self) {
        self.slots.push(Slot { is_live: false, ..Slot::new([0; 32], 0, 0, false) });
    }

    /// Sets when a live slot was used; returns what it was.
    pub(super) fn set_used(&mut self, slot: u32, used: u64, used_at: u32) -> u64 {
        let slot = &mut self.slots[slot as usize];
        debug_assert!(slot.is_live);
        let before = std::mem::replace(&mut slot.used, used);
        slot.used_at = used_at;
        self.used_sum = self.used_sum - u128::from(before) + u128::from(used);
        before
    }

    pub(super) fn set_pinned(&mut self, slot: u32, is_pinned: bool) {
        let slot = &mut self.slots[slot as usize];
        self.pinned = self.pinned - u32::from(slot.is_pinned) + u32::from(is_pinned);
        slot.is_pinned = is_pinned;
    }

    /// Makes a slot waste; returns what it was if it was live.
    pub(super) fn kill(&mut self, slot: u32) -> Option<Slot> {
        let slot = self.slots.get_mut(slot as usize).filter(|slot| slot.is_live)?;
        let before = *slot;
        slot.is_live = false;
        slot.is_pinned = false;
        self.live -= 1;
        self.pinned -= u32::from(before.is_pinned);
        self.used_sum -= u128::from(before.used);
        Some(before)
    }
}
