//! Fetches files of a Hugging Face repository into the cache its own tools share, and uses what they put there.
//!
//! ```text
//! list the repository -> choose files -> ask for their sizes -> is there room? -> bring each -> check each
//! out of reach, offline -> the snapshot that is here, if it is whole
//! ```
//! Layout: [`remote`] does that, [`about`] reads what the hub says of a file.
//!
//! The etag of a large file is its sha256. Must never: use a name from the server as a path before it was parsed, or keep a file
//! that does not fit its checksum.

mod about;
mod remote;

use self::remote::Remote;
use super::selection::{self, Choice, Wish};
use super::{Fetched, Surroundings};
use crate::catalogue::FileSpec;
use crate::error::SourceError;
use crate::manifest::RelativePath;
use crate::progress::Report;

/// What to fetch.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub repo: &'a str,
    pub revision: &'a str,
    pub wanted: Wanted<'a>,
}

#[derive(Debug)]
pub(crate) enum Wanted<'a> {
    /// Exactly these bytes.
    Pinned(&'a [FileSpec]),
    /// Whatever is chosen by this wish.
    Chosen(Wish<'a>),
}

impl<'a> Request<'a> {
    /// The source, in words.
    pub(crate) fn label(&self) -> String {
        format!("Hugging Face {}", self.repo)
    }

    fn choose(&self, listed: &[String]) -> Result<Choice, SourceError> {
        match self.wanted {
            Wanted::Pinned(files) => {
                let paths = files.iter().filter_map(|spec| RelativePath::parse(spec.path));
                Ok(Choice { files: paths.collect(), others: Vec::new() })
            }
            Wanted::Chosen(wish) => selection::choose(listed, wish),
        }
    }

    fn spec(&self, path: &RelativePath) -> Option<&'a FileSpec> {
        match self.wanted {
            Wanted::Pinned(files) => files.iter().find(|spec| spec.path == path.as_str()),
            Wanted::Chosen(_) => None,
        }
    }
}

/// Fetches what is not in the cache yet, and checks everything. A hub that is out of reach is done without where the cache has the
/// whole model.
pub(crate) fn fetch(
    around: &Surroundings<'_>,
    request: &Request<'_>,
    report: Report<'_>,
) -> Result<Fetched, SourceError> {
    let remote = Remote::new(around, request);
    match remote.listing() {
        Ok(listing) => remote.fetch(listing, report),
        Err(error) if error.is_out_of_reach() => remote.cached(error, report),
        Err(error) => Err(error),
    }
}
