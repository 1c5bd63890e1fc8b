//! What the hub says of a file, in the headers of its answer.

use std::fs;
use std::path::PathBuf;

use ureq::http::HeaderMap;

use crate::error::SourceError;
use crate::manifest::RelativePath;
use crate::source::cache::RepoCache;
use crate::source::http::{header, total_of_range};
use crate::source::transfer;

/// What the hub says of a file.
#[derive(Debug)]
pub(super) struct About {
    /// Where its bytes go in the cache.
    pub blob: PathBuf,
    pub commit: String,
    pub size: u64,
}

/// The size of the whole file.
pub(super) fn size(headers: &HeaderMap) -> Option<u64> {
    let linked = header(headers, "x-linked-size").and_then(|size| size.parse().ok());
    linked.or_else(|| total_of_range(headers))
}

/// The size that whoever delivers the file tells. One that knows no ranges announces the whole of it.
pub(super) fn delivered_size(headers: &HeaderMap) -> Option<u64> {
    size(headers).or_else(|| header(headers, "content-length")?.parse().ok())
}

impl About {
    /// Reads the headers; `size` may have been told by others.
    pub(super) fn new(
        cache: &RepoCache,
        path: &RelativePath,
        headers: &HeaderMap,
        size: Option<u64>,
    ) -> Result<About, SourceError> {
        let lacking =
            |name: &str| SourceError::BadAnswer { detail: format!("`{path}` comes without {name}") };
        let etag = header(headers, "x-linked-etag").or_else(|| header(headers, "etag"));
        let etag = etag.ok_or_else(|| lacking("an etag"))?;
        let etag = etag.trim_start_matches("W/").replace('"', "");
        let commit = header(headers, "x-repo-commit").ok_or_else(|| lacking("a commit"))?;
        Ok(About {
            blob: cache.blob(plain_name(&etag)?),
            commit: plain_name(&commit)?.to_owned(),
            size: size.ok_or_else(|| lacking("its size"))?,
        })
    }

    /// Whether all its bytes are in the cache, under whatever name.
    pub(super) fn is_here(&self) -> bool {
        fs::metadata(&self.blob).is_ok_and(|kind| kind.len() == self.size)
    }

    /// Bytes that are still to come.
    pub(super) fn missing_bytes(&self) -> u64 {
        if self.is_here() { 0 } else { self.size - transfer::bytes_here(&self.blob, self.size) }
    }
}

/// A commit or etag that is used as a file name: one plain component.
pub(super) fn plain_name(text: &str) -> Result<&str, SourceError> {
    let plain =
        !text.is_empty() && text.len() <= 128 && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if plain {
        Ok(text)
    } else {
        Err(SourceError::BadAnswer { detail: format!("`{text:.80}` is no commit or etag") })
    }
}
