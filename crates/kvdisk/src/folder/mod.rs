//! The folder of a disk area: which files there are, and what is done with whole files.
//!
//! ```text
//! 0000002a.kv   a segment; the number only grows
//! index         when blocks were last used, what is forgotten, what is pinned; written anew (index.tmp) and renamed
//! lock          held by the one process that writes
//! ```

mod file;
mod lock;
pub(crate) mod scan;
pub(crate) mod snapshot;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use file::SegmentFile;
pub(crate) use lock::FolderLock;

const ENDING: &str = "kv";
/// Numbers from here on are not ours: no process makes so many segments, and counting must not overflow.
const LAST_ID: u32 = 0xf000_0000;
/// Times from here on are no number to begin with: enough must be left. The year 2089.
const LAST_TIME: u32 = 0xe000_0000;

/// The number of a segment, which is its file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SegmentId(pub(crate) u32);

impl SegmentId {
    /// The number for a first segment at that time, in seconds since 1970; a clock far in the future says nothing.
    pub(crate) fn from_time(seconds: u32) -> Self {
        Self(if seconds < LAST_TIME { seconds } else { 1 })
    }

    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Whether a file may have this number.
    pub(crate) fn is_valid(self) -> bool {
        self.0 < LAST_ID
    }

    pub(crate) fn file_name(self) -> String {
        format!("{:08x}.{ENDING}", self.0)
    }
}

/// A folder.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    dir: PathBuf,
}

impl Folder {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf() }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn segment(&self, id: SegmentId) -> PathBuf {
        self.dir.join(id.file_name())
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.dir.join("index")
    }

    pub(crate) fn index_draft(&self) -> PathBuf {
        self.dir.join("index.tmp")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// All segments with the lengths of their files, in the order of their numbers.
    pub(crate) fn segments(&self) -> io::Result<Vec<(SegmentId, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let Some(id) = segment_id(&entry.path()) else { continue };
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => found.push((id, metadata.len())),
                _ => {}
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Whether a file is one of those that make up an area.
    pub(crate) fn is_ours(&self, path: &Path) -> bool {
        segment_id(path).is_some()
            || [self.index(), self.index_draft(), self.lock()].iter().any(|ours| ours == path)
    }

    /// Deletes a segment; one that is gone already is no error.
    pub(crate) fn remove(&self, id: SegmentId) -> io::Result<()> {
        match fs::remove_file(self.segment(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes names that were created or renamed survive a loss of power.
    pub(crate) fn sync(&self) -> io::Result<()> {
        // Elsewhere folders can't be opened, and need not be.
        if cfg!(unix) { File::open(&self.dir)?.sync_all() } else { Ok(()) }
    }

    /// Bytes that this process could still write to the file system; `None` where the system does not say.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        #[cfg(unix)]
        {
            let system = rustix::fs::statvfs(&self.dir).ok()?;
            Some(system.f_bavail.saturating_mul(system.f_frsize))
        }
        #[cfg(not(unix))]
        None
    }
}

/// The number in a segment's file name.
fn segment_id(path: &Path) -> Option<SegmentId> {
    let name = path.file_name()?.to_str()?;
    let digits = name.strip_suffix(ENDING)?.strip_suffix('.')?;
    let is_ours = digits.len() == 8 && digits.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    let id = u32::from_str_radix(digits, 16).ok()?;
    Some(SegmentId(id)).filter(|id| is_ours && id.is_valid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_segments_are_numbers() {
        let id = |name: &str| segment_id(Path::new(name));
        assert_eq!(id("x/0000002a.kv"), Some(SegmentId(42)));
        for other in
            ["0000002A.kv", "+000002a.kv", "2a.kv", "0000002a.kv.tmp", "0000002akv", "index", "ffffffff.kv"]
        {
            assert_eq!(id(other), None, "{other}");
        }
    }
}
