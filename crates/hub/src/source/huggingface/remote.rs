//! One repository on the hub, and the part of the cache its files go to.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Request;
use super::about::{self, About, plain_name};
use crate::checksum::{self, Copied, Sha256};
use crate::error::SourceError;
use crate::lock::Lock;
use crate::manifest::{FileRecord, Owner, RelativePath};
use crate::progress::{Progress, Report};
use crate::source::cache::{RepoCache, create_parent};
use crate::source::http::{Ask, Client};
use crate::source::retry::{retrying, while_busy};
use crate::source::selection::Choice;
use crate::source::transfer::{self, Transfer};
use crate::source::{Fetched, Place, Surroundings, parts, space};

/// A repository's listing, as far as it matters here.
#[derive(Debug, Deserialize)]
pub(super) struct Listing {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Debug, Deserialize)]
struct Sibling {
    rfilename: String,
}

/// A repository, and the cache its files go to.
pub(super) struct Remote<'a> {
    around: &'a Surroundings<'a>,
    request: &'a Request<'a>,
    client: Client,
    cache: RepoCache,
}

impl<'a> Remote<'a> {
    pub(super) fn new(around: &'a Surroundings<'a>, request: &'a Request<'a>) -> Remote<'a> {
        let hub = &around.config.hugging_face;
        let client = Client::new(&hub.endpoint, hub.token.clone(), around.config.patience, around.cancel);
        Remote { around, request, client, cache: RepoCache::new(&hub.cache, request.repo) }
    }

    /// A hub that can't be reached is not tried again: the user should hear so at once. One that is merely busy is.
    pub(super) fn listing(&self) -> Result<Listing, SourceError> {
        if self.around.config.offline {
            return Err(SourceError::Offline);
        }
        let Request { repo, revision, .. } = self.request;
        let endpoint = &self.around.config.hugging_face.endpoint;
        let url = format!("{endpoint}/api/models/{repo}/revision/{}", escaped(revision));
        let ask = Ask { url: &url, what: repo, ..Ask::default() };
        let body = while_busy(self.around.cancel, || self.client.read(ask));
        let body = body.map_err(|error| self.with_page(error))?;
        serde_json::from_slice(&body).map_err(|error| SourceError::BadAnswer { detail: error.to_string() })
    }

    /// Says where terms are accepted.
    fn with_page(&self, error: SourceError) -> SourceError {
        match error {
            SourceError::Refused { status, .. } => {
                let page = format!("{}/{}", self.around.config.hugging_face.endpoint, self.request.repo);
                SourceError::Refused { status, page: Some(page) }
            }
            other => other,
        }
    }

    pub(super) fn fetch(&self, listing: Listing, report: Report<'_>) -> Result<Fetched, SourceError> {
        let listed: Vec<String> = listing.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
        let snapshot = self.cache.snapshot(plain_name(&listing.sha)?);
        let choice = self.request.choose(&listed)?;
        self.tell_choice(&choice, report);
        let missing = choice.files.iter().filter(|path| !path.below(&snapshot).exists());
        let missing: Vec<_> =
            missing.map(|path| Ok((path, self.about(path)?))).collect::<Result<_, SourceError>>()?;
        self.check_room(missing.iter().map(|(_, about)| about))?;
        for (path, about) in missing {
            self.bring(path, &about, report)?;
            if !path.below(&snapshot).exists() {
                let detail = format!("`{path}` changed while it was being fetched");
                return Err(SourceError::BadAnswer { detail });
            }
        }
        self.checked(choice.files, snapshot, report)
    }

    /// The model as the cache has it, where that is whole; `error` says why the hub was not asked.
    pub(super) fn cached(&self, error: SourceError, report: Report<'_>) -> Result<Fetched, SourceError> {
        let Some(commit) = self.cache.commit(self.request.revision) else { return Err(error) };
        let snapshot = self.cache.snapshot(&commit);
        let Ok(choice) = self.request.choose(&self.cache.files(&commit)) else { return Err(error) };
        let is_whole =
            parts::is_whole(&choice.files) && choice.files.iter().all(|path| path.below(&snapshot).exists());
        if !is_whole {
            return Err(error);
        }
        report(Progress::Trying { source: &format!("the Hugging Face cache ({error})") });
        self.tell_choice(&choice, report);
        self.checked(choice.files, snapshot, report)
    }

    fn tell_choice(&self, choice: &Choice, report: Report<'_>) {
        let [first, ..] = choice.others.as_slice() else { return };
        let others: Vec<&str> = choice.others.iter().map(|quant| quant.as_str()).collect();
        let example = format!("{}:{first}", self.request.repo);
        report(Progress::Chosen { chosen: choice.files[0].as_str(), others: &others, example: &example });
    }

    /// Reads all files again and notes what they are.
    fn checked(
        &self,
        files: Vec<RelativePath>,
        snapshot: PathBuf,
        report: Report<'_>,
    ) -> Result<Fetched, SourceError> {
        let mut records = Vec::new();
        for path in files {
            records.push(self.verify(path, &snapshot, report)?);
        }
        Ok(Fetched { place: Place::Shared(snapshot), files: records, source: self.request.label() })
    }

    fn url(&self, path: &RelativePath) -> String {
        let Request { repo, revision, .. } = self.request;
        format!("{}/{repo}/resolve/{}/{path}", self.around.config.hugging_face.endpoint, escaped(revision))
    }

    /// What the hub says of a file. The size of a small one is only told by whoever delivers it.
    fn about(&self, path: &RelativePath) -> Result<About, SourceError> {
        let url = self.url(path);
        let ask = Ask { url: &url, what: path.as_str(), range: Some("bytes=0-0"), accept: None };
        let headers = retrying(self.around.cancel, || self.client.headers(ask));
        let headers = headers.map_err(|error| self.with_page(error))?;
        let size = match about::size(&headers) {
            Some(size) => Some(size),
            None => about::delivered_size(&retrying(self.around.cancel, || self.client.final_headers(ask))?),
        };
        About::new(&self.cache, path, &headers, size)
    }

    /// Whether the disk has room for what is still to come.
    fn check_room<'b>(&self, files: impl Iterator<Item = &'b About>) -> Result<(), SourceError> {
        let needed = files.map(About::missing_bytes).fold(0_u64, u64::saturating_add);
        space::check(&self.around.config.hugging_face.cache, needed)
    }

    /// Makes sure the file is in its snapshot. The same blob may belong to several models, whose pulls do not hold the same
    /// lock, so it has one of its own.
    fn bring(&self, path: &RelativePath, about: &About, report: Report<'_>) -> Result<(), SourceError> {
        create_parent(&about.blob)?;
        let _lock = Lock::acquire(&about.blob.with_extension("lock"), self.around.cancel, || ())
            .map_err(SourceError::from_lock)?;
        if !about.is_here() {
            let (url, how) = (self.url(path), self.around.config.transfers);
            let (client, name, target) = (&self.client, path.as_str(), about.blob.as_path());
            Transfer { client, url: &url, name, size: about.size, target, how }.run(report)?;
        }
        self.cache.link(&about.blob, &about.commit, path)?;
        self.cache.note(self.request.revision, &about.commit)
    }

    /// Reads the file again: size and sha256 must be the catalogue's, or else what its etag promises. A file that a transfer of
    /// ours brought and that is not what it should be is deleted, so that the next pull fetches it afresh.
    fn verify(
        &self,
        path: RelativePath,
        snapshot: &Path,
        report: Report<'_>,
    ) -> Result<FileRecord, SourceError> {
        let link = path.below(snapshot);
        let blob = link.canonicalize().map_err(SourceError::io("open", &link))?;
        let owner = if transfer::is_unsettled(&blob) { Owner::Ropeway } else { Owner::Others };
        let copied = checksum::of_file(&blob, path.as_str(), self.around.cancel, report)?;
        let checked = match self.request.spec(&path) {
            Some(spec) => spec.check(copied),
            None => check_etag(&blob, &link, copied),
        };
        if checked.is_err() && owner == Owner::Ropeway {
            for wrong in [&link, &blob] {
                // The checksum error is the one to report; a file that stays is found wrong again.
                let _ = fs::remove_file(wrong);
            }
        }
        transfer::settle(&blob);
        checked.map(|()| FileRecord { path, bytes: copied.bytes, sha256: copied.sha256, owner })
    }
}

/// A revision in an address: its slashes would be taken for the path's.
fn escaped(revision: &str) -> String {
    revision.replace('/', "%2F")
}

/// A blob is named by its etag, which for large files is their sha256.
fn check_etag(blob: &Path, link: &Path, copied: Copied) -> Result<(), SourceError> {
    let etag = blob.file_name().and_then(|name| name.to_str()).and_then(Sha256::parse);
    match etag {
        Some(expected) if expected != copied.sha256 => {
            let file = link.display().to_string();
            Err(SourceError::WrongChecksum { file, expected, found: copied.sha256 })
        }
        _ => Ok(()),
    }
}
