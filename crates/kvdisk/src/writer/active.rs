//! The segment that a shelf's blocks are added to.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Key;
use crate::folder::{Folder, SegmentFile, SegmentId};
use crate::format::{
    FooterLine, PAGE, RECORD_HEADER, RecordHeader, SegmentHeader, checksum, encode_footer, footer_bytes,
    record_offset, stride,
};
use crate::index::Place;
use crate::shared::{Staged, wall_seconds};
use crate::shelf::ShelfSpec;
use crate::staging::Buffer;

/// A block to be added.
pub(super) struct NewRecord {
    pub(super) key: Key,
    pub(super) used: u64,
    pub(super) used_at: u32,
    pub(super) source: Source,
}

/// Where a whole record is, in aligned memory; its header is not looked at.
pub(super) enum Source {
    Queue(Arc<Staged>),
    /// Carried over from that place, read together with its neighbours.
    Carried(Place, Arc<Buffer>, Range<usize>),
}

impl NewRecord {
    fn bytes(&self) -> &[u8] {
        match &self.source {
            Source::Queue(staged) => staged.bytes(),
            Source::Carried(_, memory, range) => &memory.bytes()[range.clone()],
        }
    }
}

/// A segment that is being written.
pub(super) struct Active {
    pub(super) id: SegmentId,
    pub(super) nonce: u64,
    file: SegmentFile,
    block_bytes: usize,
    /// Slots written so far, and at most.
    next: u32,
    slots: u32,
    /// Something was written since the last sync.
    is_dirty: bool,
}

impl Active {
    pub(super) fn create(folder: &Folder, id: SegmentId, spec: &ShelfSpec, slots: u32) -> io::Result<Self> {
        let header =
            SegmentHeader { id: id.0, nonce: nonce(id), created: wall_seconds(), spec: spec.clone() };
        let file = SegmentFile::create(&folder.segment(id))?;
        let mut active = Self {
            id,
            nonce: header.nonce,
            file,
            block_bytes: spec.block_bytes,
            next: 0,
            slots,
            is_dirty: true,
        };
        active.write_page_aligned(&header.encode(), 0).inspect_err(|_| {
            let _ = folder.remove(id);
        })?;
        Ok(active)
    }

    fn write_page_aligned(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut aligned = Buffer::new(bytes.len());
        aligned.bytes_mut().copy_from_slice(bytes);
        self.file.write_at(&[aligned.bytes()], offset)
    }

    fn stride(&self) -> usize {
        stride(self.block_bytes)
    }

    /// Slots that are left.
    pub(super) fn room(&self) -> usize {
        (self.slots - self.next) as usize
    }

    /// Length of the file.
    pub(super) fn bytes(&self) -> u64 {
        record_offset(self.next, self.stride())
    }

    /// Bytes that completing it adds.
    pub(super) fn reserve(&self) -> u64 {
        footer_bytes(self.slots) as u64
    }

    /// Adds records, at most [`Active::room`].
    ///
    /// Staged blocks may be handed to a reader at the same time, so they are not written to: each record's first page is
    /// put together in `heads`, and goes out before the rest of the record.
    pub(super) fn append(&mut self, records: &[NewRecord]) -> io::Result<()> {
        debug_assert!(records.len() <= self.room());
        let mut heads = Buffer::new(records.len() * PAGE);
        self.fill_heads(&mut heads, records);
        let parts: Vec<&[u8]> = heads
            .bytes()
            .chunks(PAGE)
            .zip(records)
            .flat_map(|(head, record)| [head, &record.bytes()[PAGE..]])
            .filter(|part| !part.is_empty())
            .collect();
        let begin = self.bytes();
        self.file.write_at(&parts, begin).inspect_err(|_| {
            // What was written in part is never looked at; it should not take room either.
            let _ = self.file.truncate(begin);
        })?;
        self.next += records.len() as u32;
        self.is_dirty = true;
        Ok(())
    }

    fn fill_heads(&self, heads: &mut Buffer, records: &[NewRecord]) {
        for ((head, record), slot) in heads.bytes_mut().chunks_mut(PAGE).zip(records).zip(self.next..) {
            head.copy_from_slice(&record.bytes()[..PAGE]);
            let block = &record.bytes()[RECORD_HEADER..][..self.block_bytes];
            let NewRecord { key, used, used_at, .. } = *record;
            RecordHeader { key, nonce: self.nonce, slot, used, used_at, sum: checksum(block) }.encode(head);
        }
    }

    /// Makes what was written survive a loss of power.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.is_dirty {
            self.file.sync()?;
            self.is_dirty = false;
        }
        Ok(())
    }

    /// Writes the footer; returns the length of the file.
    pub(super) fn complete(mut self, lines: &[FooterLine]) -> io::Result<u64> {
        debug_assert_eq!(lines.len(), self.next as usize);
        let footer = encode_footer(self.nonce, lines);
        self.write_page_aligned(&footer, self.bytes())?;
        self.file.sync()?;
        Ok(self.bytes() + footer.len() as u64)
    }
}

/// A number that no other segment has: what tells records of this file from those of any other.
fn nonce(id: SegmentId) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), now);
    checksum(
        &[
            seed.to_le_bytes(),
            now.to_le_bytes()[..8].try_into().unwrap_or_default(),
            u64::from(id.0).to_le_bytes(),
        ]
        .concat(),
    )
}
