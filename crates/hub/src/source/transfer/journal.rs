//! What is here of a file that comes in pieces: the plan, how far each piece is, and the note of it beside the file.
//!
//! ```text
//! blobs/<name>.part      the file, as long as it will be; pieces are written where they belong
//!             .pieces    {"size": 100, "piece": 32, "done": [32, 32, 7, 0]}
//! ```
//! The note outlives the transfer until the file was checked: it tells that the bytes are ours even if the program ends in between.
//! Bytes are written before the note says so, and the note is replaced by a rename: whatever kills the program, what the note says
//! is there. A power cut may lie about it; the checksum of the whole file finds that out.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::SourceError;

/// A note larger than this is not ours: a file of a terabyte in the smallest pieces needs about 300 kB.
const LARGEST_NOTE: u64 = 4 << 20;

/// How far the pieces of a file are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pieces {
    size: u64,
    /// Bytes of each piece but the last.
    piece: u64,
    /// Bytes that are here of each, from its beginning.
    done: Vec<u64>,
}

impl Pieces {
    /// A file of which nothing is here yet.
    pub(super) fn new(size: u64, piece: u64) -> Pieces {
        let piece = piece.clamp(1, size.max(1));
        Pieces { size, piece, done: vec![0; size.div_ceil(piece) as usize] }
    }

    /// One piece: for servers that can't send parts.
    pub(super) fn whole(size: u64) -> Pieces {
        Pieces::new(size, size)
    }

    pub(super) fn count(&self) -> usize {
        self.done.len()
    }

    /// Bytes that are here.
    pub(super) fn bytes(&self) -> u64 {
        self.done.iter().sum()
    }

    /// The bytes that piece `i` consists of.
    pub(super) fn range(&self, i: usize) -> Range<u64> {
        let start = self.piece * i as u64;
        start..(start + self.piece).min(self.size)
    }

    /// The bytes that are still missing of piece `i`.
    pub(super) fn missing(&self, i: usize) -> Range<u64> {
        let Range { start, end } = self.range(i);
        start + self.done[i]..end
    }

    pub(super) fn add(&mut self, i: usize, bytes: u64) {
        self.done[i] += bytes;
    }

    /// Forgets what was here of piece `i`.
    pub(super) fn restart(&mut self, i: usize) {
        self.done[i] = 0;
    }

    fn is_possible(&self, size: u64) -> bool {
        let fits = |i: usize| self.done[i] <= self.range(i).end - self.range(i).start;
        self.size == size
            && self.piece > 0
            && self.done.len() as u64 == size.div_ceil(self.piece)
            && (0..self.done.len()).all(fits)
    }
}

/// The two files of a transfer.
#[derive(Debug)]
pub(super) struct Journal {
    part: PathBuf,
    note: PathBuf,
}

impl Journal {
    /// The files beside `target`.
    pub(super) fn beside(target: &Path) -> Journal {
        Journal { part: target.with_extension("part"), note: target.with_extension("pieces") }
    }

    /// What an earlier attempt left of a file of that size.
    pub(super) fn find(&self, size: u64) -> Option<Pieces> {
        let is_short = |path: &Path| fs::metadata(path).is_ok_and(|kind| kind.len() <= LARGEST_NOTE);
        let text = is_short(&self.note).then(|| fs::read(&self.note).ok())??;
        let pieces: Pieces = serde_json::from_slice(&text).ok()?;
        let is_there = fs::metadata(&self.part).is_ok_and(|kind| kind.len() == size);
        (is_there && pieces.is_possible(size)).then_some(pieces)
    }

    /// Makes room for the whole file; what was there before is gone.
    pub(super) fn begin(&self, pieces: Pieces) -> Result<Pieces, SourceError> {
        let make = || {
            let _ = fs::remove_file(&self.note);
            File::create(&self.part)?.set_len(pieces.size)
        };
        make().map_err(SourceError::io("create", &self.part))?;
        self.save(&pieces).map(|()| pieces)
    }

    /// Notes how far the pieces are.
    pub(super) fn save(&self, pieces: &Pieces) -> Result<(), SourceError> {
        let new = self.note.with_extension("pieces-new");
        let write = || -> io::Result<()> {
            fs::write(&new, serde_json::to_vec(pieces)?)?;
            fs::rename(&new, &self.note)
        };
        write().map_err(SourceError::io("write", &self.note))
    }

    /// The file to write to, at any place of it.
    pub(super) fn open(&self) -> Result<File, SourceError> {
        File::options().write(true).open(&self.part).map_err(SourceError::io("open", &self.part))
    }

    pub(super) fn part(&self) -> &Path {
        &self.part
    }

    /// Gives the whole file its name.
    pub(super) fn finish(&self, target: &Path) -> Result<(), SourceError> {
        let named = self.open()?.sync_all().and_then(|()| fs::rename(&self.part, target));
        named.map_err(SourceError::io("create", target))
    }

    /// Whether there is a note, of a file that is whole or not.
    pub(super) fn is_noted(&self) -> bool {
        self.note.exists()
    }

    /// Takes the note away.
    pub(super) fn forget(&self) {
        // A note without its part says nothing to anybody.
        let _ = fs::remove_file(&self.note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_file_without_gap_or_overlap() {
        for (size, piece) in [(100, 32), (96, 32), (1, 32), (7, 1), (5, 0)] {
            let pieces = Pieces::new(size, piece);
            let mut end = 0;
            for range in (0..pieces.count()).map(|i| pieces.range(i)) {
                assert_eq!(range.start, end);
                assert!(range.end > range.start);
                end = range.end;
            }
            assert_eq!(end, size);
        }
        assert_eq!(Pieces::new(0, 32).count(), 0);
    }

    #[test]
    fn what_was_noted_is_found_again_and_nonsense_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::beside(&folder.path().join("blob"));
        assert_eq!(journal.find(100), None);
        let mut pieces = journal.begin(Pieces::new(100, 32)).unwrap();
        pieces.add(2, 7);
        journal.save(&pieces).unwrap();
        assert_eq!(journal.find(100), Some(pieces));
        assert_eq!(journal.find(99), None, "another size is another file");
        for bad in
            ["", "{}", r#"{"size":100,"piece":0,"done":[]}"#, r#"{"size":100,"piece":50,"done":[51,0]}"#]
        {
            fs::write(folder.path().join("blob.pieces"), bad).unwrap();
            assert_eq!(journal.find(100), None, "{bad}");
        }
    }
}
