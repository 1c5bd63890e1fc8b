//! Whether the files of a pulled model are still what was pulled.
//!
//! Sizes cost nothing and are looked at whenever a model is opened; checksums mean reading everything, and are compared when
//! somebody asks. Must never: change a file.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use crate::cancel::Cancel;
use crate::checksum::{self, Sha256};
use crate::error::SourceError;
use crate::manifest::FileRecord;
use crate::progress::Report;
use crate::store::Installed;

/// How closely files are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Check {
    /// They are there and have their sizes.
    #[default]
    Sizes,
    /// Every byte is what it was.
    Checksums,
}

/// What a look at every byte found.
#[derive(Debug)]
pub struct Verified {
    /// The model's name.
    pub name: String,
    /// How many files it has.
    pub files: usize,
    /// The size of all of them together, as it should be.
    pub bytes: u64,
    /// Files that are not what they should be.
    pub damage: Vec<Damage>,
}

/// A file that is not what it should be.
#[derive(Debug)]
pub struct Damage {
    /// Where it is.
    pub path: PathBuf,
    /// What is wrong.
    pub problem: Problem,
    pub(crate) record: FileRecord,
}

/// What is wrong with a file.
#[derive(Debug)]
pub enum Problem {
    /// It can't be read, or is not there.
    Unreadable(String),
    /// It is longer or shorter than it was.
    Size {
        /// Bytes it has.
        found: u64,
        /// Bytes it should have.
        expected: u64,
    },
    /// It is as long as it was, and yet different.
    Content {
        /// The sha256 it has.
        found: Sha256,
        /// The sha256 it should have.
        expected: Sha256,
    },
}

impl Installed {
    /// The files that are missing or have changed their size.
    pub(crate) fn wrong_sizes(&self) -> Vec<Damage> {
        self.manifest.files.iter().filter_map(|record| self.wrong_size(record)).collect()
    }

    fn wrong_size(&self, record: &FileRecord) -> Option<Damage> {
        let path = record.path.below(self.root());
        let problem = match fs::metadata(&path) {
            Err(error) => Problem::Unreadable(error.to_string()),
            Ok(kind) if kind.len() != record.bytes => {
                Problem::Size { found: kind.len(), expected: record.bytes }
            }
            Ok(_) => return None,
        };
        Some(Damage { path, problem, record: record.clone() })
    }

    /// The files that are not what they were, by size or by content.
    pub(crate) fn damage(
        &self,
        check: Check,
        cancel: &Cancel,
        report: Report<'_>,
    ) -> Result<Vec<Damage>, SourceError> {
        if check == Check::Sizes {
            return Ok(self.wrong_sizes());
        }
        let mut all = Vec::new();
        for record in &self.manifest.files {
            let wrong = match self.wrong_size(record) {
                None => self.wrong_content(record, cancel, report)?,
                wrong => wrong,
            };
            all.extend(wrong);
        }
        Ok(all)
    }

    fn wrong_content(
        &self,
        record: &FileRecord,
        cancel: &Cancel,
        report: Report<'_>,
    ) -> Result<Option<Damage>, SourceError> {
        let path = record.path.below(self.root());
        let problem = match checksum::of_file(&path, record.path.as_str(), cancel, report) {
            Ok(copied) if copied.sha256 == record.sha256 => return Ok(None),
            Ok(copied) => Problem::Content { found: copied.sha256, expected: record.sha256 },
            Err(SourceError::Cancelled) => return Err(SourceError::Cancelled),
            Err(error) => Problem::Unreadable(error.to_string()),
        };
        Ok(Some(Damage { path, problem, record: record.clone() }))
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.problem {
            Problem::Unreadable(why) => write!(f, "{path}: {why}"),
            Problem::Size { found, expected } => write!(f, "{path} has {found} bytes instead of {expected}"),
            Problem::Content { found, expected } => {
                write!(f, "{path} has the sha256 {found} instead of {expected}")
            }
        }
    }
}
