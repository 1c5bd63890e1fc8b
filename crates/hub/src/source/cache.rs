//! The layout of the download cache that all Hugging Face tools share.
//!
//! ```text
//! <cache>/models--org--repo/blobs/<etag>                  a file's bytes
//!                          /blobs/<etag>.part, .pieces    a transfer, and how far it is
//!                          /blobs/<etag>.lock             who is at it
//!                          /snapshots/<commit>/<path>     a link to a blob
//!                          /refs/<revision>               the commit that a branch meant last
//! ```
//! Must never: be given a name from a server that was not parsed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::SourceError;
use crate::manifest::RelativePath;

/// How deep folders in a repository are looked into; a link may lead in circles.
const FOLDERS_DEEP: usize = 3;

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

    /// The commit that a revision meant last, if its snapshot is here.
    pub(crate) fn commit(&self, revision: &str) -> Option<String> {
        let noted = fs::read_to_string(self.root.join("refs").join(revision)).ok();
        let commit = noted.map_or_else(|| revision.to_owned(), |text| text.trim().to_owned());
        let is_plain = RelativePath::parse(&commit).is_some() && !commit.contains('/');
        (is_plain && self.snapshot(&commit).is_dir()).then_some(commit)
    }

    /// The files of a snapshot whose bytes are all here; names as the hub lists them.
    pub(crate) fn files(&self, commit: &str) -> Vec<String> {
        let mut names = Vec::new();
        collect(&self.snapshot(commit), "", FOLDERS_DEEP, &mut names);
        names.sort();
        names
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

/// Adds the names of the files below a folder, links that lead nowhere left out.
fn collect(folder: &Path, prefix: &str, deep: usize, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = entry.path();
        if path.is_file() {
            names.push(format!("{prefix}{name}"));
        } else if path.is_dir() && deep > 0 {
            collect(&path, &format!("{prefix}{name}/"), deep - 1, names);
        }
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
