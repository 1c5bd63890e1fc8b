//! From the files of a folder to an index.

use std::io;

use crate::folder::scan::{FoundSegment, Unreadable, read_segment};
use crate::folder::{Folder, SegmentId, snapshot};
use crate::index::{Index, Segment};

/// What was found besides blocks.
pub(crate) struct Loaded {
    pub(crate) ignored: Vec<Ignored>,
    /// Last uses, pins and what is forgotten were known.
    pub(crate) has_snapshot: bool,
}

/// A file that is named as a segment and can't be used.
pub(crate) struct Ignored {
    pub(crate) id: SegmentId,
    pub(crate) bytes: u64,
    pub(crate) why: Unreadable,
}

/// Reads all segments of a folder, without their blocks, and what else is known of them.
pub(crate) fn load(folder: &Folder, index: &mut Index) -> io::Result<Loaded> {
    let mut ignored = Vec::new();
    for (id, bytes) in folder.segments()? {
        match read_segment(folder, id) {
            Ok(found) => add(index, id, &found),
            Err(why) => {
                index.unreadable.insert(id, bytes);
                ignored.push(Ignored { id, bytes, why });
            }
        }
    }
    let has_snapshot = snapshot::load(folder, index).is_some();
    Ok(Loaded { ignored, has_snapshot })
}

/// Adds a segment as it was found.
pub(crate) fn add(index: &mut Index, id: SegmentId, found: &FoundSegment) {
    let shelf = index.shelf(&found.header.spec);
    let mut segment = Segment::new(shelf, found.header.nonce, found.slots.len());
    segment.bytes = found.bytes;
    segment.is_complete = found.is_complete;
    index.unreadable.remove(&id);
    index.add_segment(id, segment);
    for line in &found.slots {
        index.append(id, line);
    }
}

#[cfg(test)]
mod tests;
