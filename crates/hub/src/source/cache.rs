//! The layout of the download cache that all Hugging Face tools share.
//!
//! ```text
//! <cache>/models--org--repo/blobs/<etag>                  a file's bytes
//!                          /blobs/<etag>.part, .lock      a transfer, and who is at it
//!                          /snapshots/<commit>/<path>     a link to a blob
//!                          /refs/<revision>               the commit that a branch meant last
//! ```
//! Must never: be given a name from a server that was not parsed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::SourceError;
use crate::manifest::RelativePath;

/// A repository's part of the cache.
#[derive(Debug)]
pub(crate) struct RepoCache {
    root: PathBuf,
}

impl RepoCache {
    /// The part of `org/repo`.
    pub(crate) fn new(cache: &Path, repo: &str) -> RepoCache {
        RepoCache { root: cache.join(format!("models--{}", repo.replace('/', "--"))) }
    }

    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.root.join("blobs").join(etag)
    }

    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    /// Makes a blob findable by the file's name.
    pub(crate) fn link(&self, blob: &Path, commit: &str, path: &RelativePath) -> Result<(), SourceError> {
        let pointer = path.below(&self.snapshot(commit));
        if pointer.exists() {
            return Ok(());
        }
        create_parent(&pointer)?;
        // A link that leads nowhere stands in the way of a new one.
        let _ = fs::remove_file(&pointer);
        symlink_or_rename(blob, &pointer, path).map_err(SourceError::io("create", &pointer))
    }

    /// Notes which commit a branch meant.
    pub(crate) fn note(&self, revision: &str, commit: &str) -> Result<(), SourceError> {
        let path = self.root.join("refs").join(revision);
        create_parent(&path)?;
        fs::write(&path, commit).map_err(SourceError::io("write", &path))
    }
}

pub(crate) fn create_parent(path: &Path) -> Result<(), SourceError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder).map_err(SourceError::io("create the folder", folder))
}

/// `snapshots/<commit>/<path>` leads to `../../blobs/<etag>`, with one more `..` for each folder in the path; where links
/// are not to be had, the blob moves.
#[cfg_attr(not(unix), allow(unused_variables, reason = "only links need it"))]
fn symlink_or_rename(blob: &Path, pointer: &Path, path: &RelativePath) -> io::Result<()> {
    #[cfg(unix)]
    {
        let up = "../".repeat(2 + path.as_str().matches('/').count());
        let target = Path::new(&up).join("blobs").join(blob.file_name().unwrap_or_default());
        std::os::unix::fs::symlink(target, pointer)
    }
    #[cfg(not(unix))]
    fs::rename(blob, pointer)
}
