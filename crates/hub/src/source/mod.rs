//! How a model's bytes get here. Each source delivers files that are checked, or says why it could not.

mod address;
pub(crate) mod cache;
mod http;
pub(crate) mod huggingface;
pub(crate) mod ollama;
pub(crate) mod origin;
pub(crate) mod parts;
pub(crate) mod pip;
mod retry;
pub(crate) mod selection;
mod space;
mod transfer;
pub(crate) mod wheel;

use std::path::PathBuf;

use crate::cancel::Cancel;
use crate::config::Config;
use crate::manifest::FileRecord;

/// What every source works with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    /// Whom to ask, and how long to wait.
    pub config: &'a Config,
    /// The word to stop.
    pub cancel: &'a Cancel,
}

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
