//! Reads every block and compares it with its checksum.

use std::fs::{self, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use super::survey::{IgnoredFile, ignored_file, readable_index};
use crate::folder::scan::Unreadable;
use crate::folder::{Folder, SegmentFile, SegmentId};
use crate::format::{RECORD_HEADER, record_offset, stride};
use crate::index::{Index, Segment};
use crate::load::load;
use crate::reader::is_record;
use crate::staging::Buffer;

/// What to do with what is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Report it.
    Keep,
    /// Report it, and make sure that it is not found again. Files of other versions are left alone.
    Remove,
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of blocks read so far.
    pub done: u64,
    /// Bytes of all blocks.
    pub total: u64,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Blocks that are as they were written.
    pub intact_blocks: u64,
    /// Their bytes.
    pub intact_bytes: u64,
    /// Blocks that are not.
    pub damaged: Vec<DamagedBlock>,
    /// Files that can't be used.
    pub ignored: Vec<IgnoredFile>,
    /// Segments that were deleted while they were read: a server reclaimed them.
    pub vanished: u64,
}

/// A block that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedBlock {
    /// The file it is in.
    pub file: String,
    /// Its position there, from 0.
    pub slot: u32,
    /// The label of its shelf.
    pub label: String,
}

/// Reads all blocks of a folder. `progress` is called after each.
pub fn verify(dir: &Path, damage: Damage, progress: &mut dyn FnMut(Progress)) -> io::Result<Verified> {
    if !dir.try_exists()? {
        return Ok(Verified::default());
    }
    let folder = Folder::new(dir);
    let mut index = readable_index();
    let loaded = load(&folder, &mut index)?;
    let ignored = loaded.ignored.iter().map(ignored_file).collect();
    let progress = Steps { told: progress, now: Progress { done: 0, total: index.shelves.total().bytes } };
    let mut check = Check { folder, index, progress, verified: Verified { ignored, ..Verified::default() } };
    check.all(damage)?;
    if damage == Damage::Remove {
        let is_ours = |why: &Unreadable| !matches!(why, Unreadable::OtherVersion(_) | Unreadable::System(_));
        for ignored in loaded.ignored.iter().filter(|ignored| is_ours(&ignored.why)) {
            check.folder.remove(ignored.id)?;
        }
    }
    Ok(check.verified)
}

struct Steps<'a> {
    told: &'a mut dyn FnMut(Progress),
    now: Progress,
}

struct Check<'a> {
    folder: Folder,
    index: Index,
    progress: Steps<'a>,
    verified: Verified,
}

impl Check<'_> {
    fn all(&mut self, damage: Damage) -> io::Result<()> {
        let mut ids: Vec<_> = self.index.segments().map(|(id, _)| id).collect();
        ids.sort_unstable();
        for id in ids {
            match SegmentFile::open(&self.folder.segment(id)) {
                Ok(file) => self.segment(id, &file, damage)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.verified.vanished += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn segment(&mut self, id: SegmentId, file: &SegmentFile, damage: Damage) -> io::Result<()> {
        let Some(segment) = self.index.segment(id) else { return Ok(()) };
        let spec = self.index.shelves.spec(segment.shelf);
        let mut memory = Buffer::new(stride(spec.block_bytes));
        let mut damaged = Vec::new();
        for (slot, block) in (0_u32..).zip(segment.slots()).filter(|(_, slot)| slot.is_live) {
            let offset = record_offset(slot, memory.bytes().len());
            let read = file.read_at(memory.bytes_mut(), offset).unwrap_or(0);
            let record = &memory.bytes()[..read];
            if is_record(record, segment.nonce, slot, spec.block_bytes, &block.key) {
                self.verified.intact_blocks += 1;
                self.verified.intact_bytes += spec.block_bytes as u64;
            } else {
                damaged.push(slot);
            }
            self.progress.now.done += spec.block_bytes as u64;
            (self.progress.told)(self.progress.now);
        }
        if damage == Damage::Remove && !damaged.is_empty() {
            remove_blocks(&self.folder, id, segment, spec.block_bytes, &damaged)?;
        }
        let label = &spec.label;
        let report = |slot| DamagedBlock { file: id.file_name(), slot, label: label.clone() };
        self.verified.damaged.extend(damaged.into_iter().map(report));
        Ok(())
    }
}

/// Erases the headers of records, and the footer, which would still list them. A server that has the segment open finds
/// the blocks damaged and forgets them.
fn remove_blocks(
    folder: &Folder,
    id: SegmentId,
    segment: &Segment,
    block_bytes: usize,
    slots: &[u32],
) -> io::Result<()> {
    let path = folder.segment(id);
    let mut file = match OpenOptions::new().write(true).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let stride = stride(block_bytes);
    let end = record_offset(segment.slots().len() as u32, stride);
    if segment.is_complete {
        file.set_len(end)?;
    }
    let bytes = fs::metadata(&path)?.len();
    for offset in slots.iter().map(|&slot| record_offset(slot, stride)).filter(|&offset| offset < bytes) {
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(&[0; RECORD_HEADER])?;
    }
    file.sync_all()
}
