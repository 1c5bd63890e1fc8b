//! Deletes what a folder holds. A server that uses it notices within seconds and goes on without.

use std::fs;
use std::io;
use std::path::Path;

use super::digits;
use crate::folder::scan::read_segment;
use crate::folder::{Folder, SegmentId};

/// Which blocks are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of them, and segments that can't be used.
    All,
    /// Those whose label begins with this.
    Label(String),
    /// Those whose identity begins with these hexadecimal digits.
    Identity(String),
}

/// What was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Segment files.
    pub segments: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// Deletes segments. Other files are not touched.
pub fn clear(dir: &Path, selection: &Selection) -> io::Result<Cleared> {
    if !dir.try_exists()? {
        return Ok(Cleared::default());
    }
    let folder = Folder::new(dir);
    let mut cleared = Cleared::default();
    for (id, bytes) in folder.segments()? {
        let Some(blocks) = selection.blocks(&folder, id) else { continue };
        folder.remove(id)?;
        cleared.segments += 1;
        cleared.blocks += blocks;
        cleared.bytes += bytes;
    }
    if *selection == Selection::All {
        // Says nothing without segments. A server writes a new one.
        let _ = fs::remove_file(folder.index());
    }
    Ok(cleared)
}

impl Selection {
    /// How many blocks of a segment are meant; `None`: the segment is not meant.
    fn blocks(&self, folder: &Folder, id: SegmentId) -> Option<u64> {
        let Ok(found) = read_segment(folder, id) else { return (*self == Self::All).then_some(0) };
        let spec = &found.header.spec;
        let is_meant = match self {
            Self::All => true,
            Self::Label(start) => spec.label.starts_with(start.as_str()),
            Self::Identity(start) => digits(&spec.identity).starts_with(&start.to_ascii_lowercase()),
        };
        is_meant.then(|| found.slots.iter().filter(|slot| slot.is_live).count() as u64)
    }
}
