//! What the fuzz targets share. A target is a few lines: it says what its input is and which of these functions it goes through.
//!
//! | module | hostile |
//! |---|---|
//! | [`checkpoints`] | files of weights |
//! | [`tokenizers`] | tokenizer files, and texts for the tokenizers that the tests of `text` use |
//! | [`grammars`] | schemas, expressions and grammars |
//! | [`templates`] | chat templates, and conversations for them |
//! | [`answers`] | what a model writes |
//! | [`server`] | requests |
//!
//! [`panics`] tells those apart that are caught by design.
//!
//! A target's binary must run on a machine that has nothing else of this repository: whatever it reads is compiled into it.

pub mod answers;
pub mod checkpoints;
pub mod grammars;
pub mod panics;
pub mod server;
pub mod templates;
pub mod tokenizers;

use tempfile::TempDir;

/// A file's name and content.
pub type File<'a> = (&'a str, &'a [u8]);

/// Cuts an input in two: a little-endian `u16` says how long the first part is.
pub fn split(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = input.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))
}

/// A fresh folder with these files in it.
pub fn folder_of(files: &[File<'_>]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).expect("room for a temporary file");
    }
    folder
}
