//! What a folder holds.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::digits;
use crate::folder::{Folder, FolderLock};
use crate::index::{Index, Segment, ShelfId, Slot};
use crate::load::{Ignored, load};
use crate::shelf::ShelfSpec;
use crate::status::Stock;

/// What a folder holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// By label.
    pub shelves: Vec<ShelfReport>,
    /// Files that are named as segments and can't be used: damaged, or of another version.
    pub ignored: Vec<IgnoredFile>,
    /// Names of files and folders that do not belong here; they are never touched.
    pub foreign: Vec<String>,
    /// Bytes of all files that do.
    pub file_bytes: u64,
    /// A process writes to the folder now.
    pub is_in_use: bool,
    /// Last uses are known; otherwise they are the times of writing.
    pub has_index: bool,
}

/// The blocks of one model in one format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShelfReport {
    /// Which blocks these are.
    pub spec: ShelfSpec,
    /// Segment files.
    pub segments: u64,
    /// Bytes of those files.
    pub file_bytes: u64,
    /// Blocks that can be fetched.
    pub stock: Stock,
    /// Blocks that are pinned.
    pub pinned_blocks: u64,
    /// When the block unused for longest was used.
    pub oldest_use: Option<SystemTime>,
    /// When the block used last was used.
    pub newest_use: Option<SystemTime>,
}

impl ShelfReport {
    /// The first digits of the identity: enough to tell shelves apart.
    pub fn short_identity(&self) -> String {
        digits(&self.spec.identity[..6])
    }
}

/// A file that is ignored, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredFile {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// What is wrong with it.
    pub why: String,
}

/// Looks at a folder. One that does not exist is empty.
pub fn survey(dir: &Path) -> io::Result<Report> {
    if !dir.try_exists()? {
        return Ok(Report::default());
    }
    let folder = Folder::new(dir);
    let mut index = readable_index();
    let loaded = load(&folder, &mut index)?;
    let (file_bytes, foreign) = files(&folder)?;
    Ok(Report {
        shelves: shelves(&index),
        ignored: loaded.ignored.iter().map(ignored_file).collect(),
        foreign,
        file_bytes,
        is_in_use: FolderLock::is_taken(&folder),
        has_index: loaded.has_snapshot,
    })
}

/// An index that takes any pin, because it decides nothing.
pub(super) fn readable_index() -> Index {
    let mut index = Index::default();
    index.pins.allowed = u64::MAX;
    index
}

pub(super) fn ignored_file(ignored: &Ignored) -> IgnoredFile {
    IgnoredFile { name: ignored.id.file_name(), bytes: ignored.bytes, why: ignored.why.to_string() }
}

/// Bytes of our files, and the names of others.
fn files(folder: &Folder) -> io::Result<(u64, Vec<String>)> {
    let mut bytes = 0;
    let mut foreign = Vec::new();
    for entry in fs::read_dir(folder.dir())? {
        let entry = entry?;
        // What is deleted meanwhile is not there.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_file() && folder.is_ours(&entry.path()) {
            bytes += metadata.len();
        } else {
            foreign.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    foreign.sort();
    Ok((bytes, foreign))
}

fn shelves(index: &Index) -> Vec<ShelfReport> {
    let mut by_shelf: BTreeMap<ShelfId, Vec<&Segment>> = BTreeMap::new();
    for (_, segment) in index.segments() {
        by_shelf.entry(segment.shelf).or_default().push(segment);
    }
    let mut reports: Vec<_> =
        by_shelf.into_iter().map(|(id, segments)| shelf_report(index, id, &segments)).collect();
    reports.sort_by(|a, b| (&a.spec.label, a.spec.identity).cmp(&(&b.spec.label, b.spec.identity)));
    reports
}

fn shelf_report(index: &Index, id: ShelfId, segments: &[&Segment]) -> ShelfReport {
    let live = || segments.iter().flat_map(|segment| segment.slots()).filter(|slot| slot.is_live);
    ShelfReport {
        spec: index.shelves.spec(id).clone(),
        segments: segments.len() as u64,
        file_bytes: segments.iter().map(|segment| segment.bytes).sum(),
        stock: index.shelves.stock(id),
        pinned_blocks: segments.iter().map(|segment| u64::from(segment.pinned())).sum(),
        oldest_use: live().map(used_at).min(),
        newest_use: live().map(used_at).max(),
    }
}

fn used_at(slot: &Slot) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::from(slot.used_at))
}
