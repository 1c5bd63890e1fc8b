//! What a segment file holds, without reading its blocks.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use super::{Folder, SegmentId};
use crate::format::{
    BadHeader, FooterLine, MAX_SLOTS, PAGE, RECORD_HEADER, RecordHeader, SegmentHeader, TRAILER,
    decode_lines, decode_trailer, footer_bytes, record_offset, stride,
};

/// A segment as it is on disk.
#[derive(Debug)]
pub(crate) struct FoundSegment {
    pub(crate) header: SegmentHeader,
    /// Length of the file.
    pub(crate) bytes: u64,
    /// Whether it has a footer: nothing is added to it any more.
    pub(crate) is_complete: bool,
    /// Its slots; those without an intact record are not live.
    pub(crate) slots: Vec<FooterLine>,
}

/// Why a file is not a segment that can be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("its header is damaged or incomplete")]
    Damaged,
    #[error("it was written by another version (format {0})")]
    OtherVersion(u32),
    #[error("it was copied or renamed")]
    Renamed,
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<BadHeader> for Unreadable {
    fn from(bad: BadHeader) -> Self {
        match bad {
            BadHeader::Damaged => Self::Damaged,
            BadHeader::OtherVersion(version) => Self::OtherVersion(version),
        }
    }
}

/// Reads a segment's header, then its footer or, without one, the header of each record.
pub(crate) fn read_segment(folder: &Folder, id: SegmentId) -> Result<FoundSegment, Unreadable> {
    let mut file = File::open(folder.segment(id))?;
    let bytes = file.metadata()?.len();
    let header = read_header(&mut file)?;
    if header.id != id.0 {
        return Err(Unreadable::Renamed);
    }
    let complete = read_footer(&mut file, bytes, &header)?;
    let is_complete = complete.is_some();
    let slots = match complete {
        Some(lines) => lines,
        None => read_records(&mut file, bytes, &header)?,
    };
    Ok(FoundSegment { header, bytes, is_complete, slots })
}

fn read_header(file: &mut File) -> Result<SegmentHeader, Unreadable> {
    let mut page = [0; PAGE];
    match file.read_exact(&mut page) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Unreadable::Damaged),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(SegmentHeader::decode(&page)?),
    }
}

/// The lines of the footer, if the file ends with an intact one at the right place.
fn read_footer(file: &mut File, bytes: u64, header: &SegmentHeader) -> io::Result<Option<Vec<FooterLine>>> {
    if bytes < (2 * PAGE) as u64 {
        return Ok(None);
    }
    let mut last = [0; TRAILER];
    file.seek(SeekFrom::Start(bytes - TRAILER as u64))?;
    file.read_exact(&mut last)?;
    let Some(trailer) = decode_trailer(&last, header.nonce) else { return Ok(None) };
    let start = record_offset(trailer.slots, stride(header.spec.block_bytes));
    let length = footer_bytes(trailer.slots);
    if bytes != start + length as u64 {
        return Ok(None);
    }
    let mut footer = vec![0; length];
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut footer)?;
    Ok(decode_lines(&footer, trailer))
}

/// The records that are whole. One that is damaged does not hide those after it.
fn read_records(file: &mut File, bytes: u64, header: &SegmentHeader) -> io::Result<Vec<FooterLine>> {
    let stride = stride(header.spec.block_bytes);
    let whole = bytes.saturating_sub(PAGE as u64) / stride as u64;
    let mut slots = Vec::new();
    for slot in 0..u32::try_from(whole).unwrap_or(u32::MAX).min(MAX_SLOTS) {
        let mut record = [0; RECORD_HEADER];
        file.seek(SeekFrom::Start(record_offset(slot, stride)))?;
        file.read_exact(&mut record)?;
        slots.push(read_line(&record, header.nonce, slot));
    }
    while slots.last().is_some_and(|line| !line.is_live) {
        slots.pop();
    }
    Ok(slots)
}

fn read_line(record: &[u8], nonce: u64, slot: u32) -> FooterLine {
    match RecordHeader::decode(record).filter(|header| header.is_at(nonce, slot)) {
        Some(header) => {
            FooterLine { key: header.key, used: header.used, used_at: header.used_at, is_live: true }
        }
        None => FooterLine { key: [0; 32], used: 0, used_at: 0, is_live: false },
    }
}
