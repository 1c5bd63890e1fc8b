//! Fetches files of a Hugging Face repository into the cache its own tools share.
//!
//! `hf-hub` does the transfer and keeps the cache's layout: blobs named by their etag, snapshots of links to them,
//! `.part` files that the next attempt resumes. This module decides what to fetch, tries again when the connection
//! breaks, and checks what came: the etag of a large file is its sha256. Must never: use a name from the server as a
//! path before it was parsed, or keep a file that does not fit its checksum.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};

use super::{Fetched, Place, selection};
use crate::catalogue::{FileSpec, PinnedRepo};
use crate::checksum::{self, Copied, Sha256};
use crate::config::{HuggingFaceConfig, Token};
use crate::error::SourceError;
use crate::manifest::{FileRecord, Owner, RelativePath};
use crate::progress::{Progress, Report, Stage};
use crate::reference::RepoFile;

/// How often a broken transfer is taken up again before the pull gives up.
const ATTEMPTS: u32 = 5;

/// The pause before the second attempt; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// What to fetch.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    repo: &'a str,
    revision: &'a str,
    wanted: Wanted<'a>,
}

#[derive(Debug)]
enum Wanted<'a> {
    /// Exactly these bytes.
    Pinned(&'a [FileSpec]),
    /// What the user named, or the one model the repository holds.
    Chosen(Option<&'a RelativePath>),
}

impl<'a> Request<'a> {
    /// Exactly the files of a catalogue entry.
    pub(crate) fn pinned(repo: &'a PinnedRepo, files: &'a [FileSpec]) -> Request<'a> {
        Request { repo: repo.repo, revision: repo.revision, wanted: Wanted::Pinned(files) }
    }

    /// What the user named.
    pub(crate) fn chosen(file: &'a RepoFile) -> Request<'a> {
        Request { repo: &file.repo, revision: "main", wanted: Wanted::Chosen(file.file.as_ref()) }
    }

    /// The source, in words.
    pub(crate) fn label(&self) -> String {
        format!("Hugging Face {}", self.repo)
    }

    fn choose(&self, listed: &[String]) -> Result<Vec<RelativePath>, SourceError> {
        match self.wanted {
            Wanted::Pinned(files) => {
                Ok(files.iter().filter_map(|spec| RelativePath::parse(spec.path)).collect())
            }
            Wanted::Chosen(file) => selection::choose(listed, file),
        }
    }

    fn spec(&self, path: &RelativePath) -> Option<&'a FileSpec> {
        match self.wanted {
            Wanted::Pinned(files) => files.iter().find(|spec| spec.path == path.as_str()),
            Wanted::Chosen(_) => None,
        }
    }
}

/// Fetches what is not in the cache yet, and checks everything. Only transfers are tried again: a hub that does not even
/// list the repository is out of reach, and the user should hear so at once.
pub(crate) fn fetch(
    config: &HuggingFaceConfig,
    request: &Request<'_>,
    report: Report<'_>,
) -> Result<Fetched, SourceError> {
    let remote = Remote::open(config, request)?;
    let info = remote.repo.info().map_err(|error| explain(error, request.repo))?;
    let commit = plain_name(&info.sha)?;
    let listed: Vec<String> = info.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
    let snapshot = remote.snapshot(commit);
    let mut files = Vec::new();
    for path in request.choose(&listed)? {
        let owner = remote.bring(&path, &snapshot, report)?;
        let copied = verify(&path, &snapshot, request.spec(&path), report)?;
        files.push(FileRecord { path, bytes: copied.bytes, sha256: copied.sha256, owner });
    }
    Ok(Fetched { place: Place::Shared(snapshot), files, source: request.label() })
}

/// A repository, and the cache its files go to.
struct Remote {
    api: Api,
    repo: ApiRepo,
    cache: Cache,
    name: Repo,
}

impl Remote {
    fn open(config: &HuggingFaceConfig, request: &Request<'_>) -> Result<Remote, SourceError> {
        let cache = Cache::new(config.cache.clone());
        let api = ApiBuilder::from_cache(cache.clone())
            .with_endpoint(config.endpoint.clone())
            .with_token(config.token.as_ref().map(Token::secret).map(str::to_owned))
            .with_user_agent("ropeway", env!("CARGO_PKG_VERSION"))
            .with_progress(false)
            .build()
            .map_err(|error| explain(error, request.repo))?;
        let name = Repo::with_revision(request.repo.into(), RepoType::Model, request.revision.into());
        Ok(Remote { repo: api.repo(name.clone()), api, cache, name })
    }

    fn snapshot(&self, commit: &str) -> PathBuf {
        self.cache.repo(self.name.clone()).pointer_path(commit)
    }

    /// Makes sure the file is in the snapshot; says who put it there.
    fn bring(&self, path: &RelativePath, snapshot: &Path, report: Report<'_>) -> Result<Owner, SourceError> {
        if path.below(snapshot).exists() {
            return Ok(Owner::Others);
        }
        retrying(|| self.download(path, report))?;
        if path.below(snapshot).exists() {
            return Ok(Owner::Ropeway);
        }
        Err(SourceError::BadAnswer { detail: format!("`{path}` changed while it was being fetched") })
    }

    /// One attempt; it continues the `.part` file a broken one left.
    fn download(&self, path: &RelativePath, report: Report<'_>) -> Result<(), SourceError> {
        let about = self
            .api
            .metadata(&self.repo.url(path.as_str()))
            .map_err(|error| explain(error, path.as_str()))?;
        let blob = self.cache.repo(self.name.clone()).blob_path(plain_name(about.etag())?);
        drop_useless_part(&blob, about.size() as u64);
        let bar = Bar { report, file: path.as_str(), done: 0, total: 0 };
        self.repo
            .download_with_progress(path.as_str(), bar)
            .map_err(|error| explain(error, path.as_str()))?;
        Ok(())
    }
}

/// A part file that is as long as the whole, or longer, cannot be continued: asking for the rest of it fails for ever.
fn drop_useless_part(blob: &Path, whole: u64) {
    let part = blob.with_extension("part");
    if fs::metadata(&part).is_ok_and(|kind| kind.len() >= whole) {
        // If it stays, the transfer fails with an error of its own.
        let _ = fs::remove_file(part);
    }
}

/// Reads the file again: size and sha256 must be the catalogue's, or else what its etag promises. A file that is not
/// what it should be is deleted, so that the next pull fetches it afresh.
fn verify(
    path: &RelativePath,
    snapshot: &Path,
    spec: Option<&FileSpec>,
    report: Report<'_>,
) -> Result<Copied, SourceError> {
    let link = path.below(snapshot);
    let blob = link.canonicalize().map_err(SourceError::io("open", &link))?;
    let copied = read_through(&blob, path, report)?;
    let checked = match spec {
        Some(spec) => spec.check(copied),
        None => check_etag(&blob, path, copied),
    };
    if checked.is_err() {
        for wrong in [&link, &blob] {
            // The checksum error is the one to report; a file that stays is found wrong again.
            let _ = fs::remove_file(wrong);
        }
    }
    checked.map(|()| copied)
}

fn read_through(blob: &Path, path: &RelativePath, report: Report<'_>) -> Result<Copied, SourceError> {
    let mut file = File::open(blob).map_err(SourceError::io("open", blob))?;
    let total = file.metadata().map_err(SourceError::io("read", blob))?.len();
    let mut on_bytes =
        |done| report(Progress::Bytes { stage: Stage::Check, file: path.as_str(), done, total });
    checksum::copy(&mut file, &mut io::sink(), total, &mut on_bytes).map_err(SourceError::io("read", blob))
}

/// A blob is named by its etag, which for large files is their sha256.
fn check_etag(blob: &Path, path: &RelativePath, copied: Copied) -> Result<(), SourceError> {
    let etag = blob.file_name().and_then(|name| name.to_str()).and_then(Sha256::parse);
    match etag {
        Some(expected) if expected != copied.sha256 => {
            Err(SourceError::WrongChecksum { file: path.to_string(), expected, found: copied.sha256 })
        }
        _ => Ok(()),
    }
}

/// A commit or etag that is used as a file name: one plain component.
fn plain_name(text: &str) -> Result<&str, SourceError> {
    let plain =
        !text.is_empty() && text.len() <= 128 && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if plain {
        Ok(text)
    } else {
        Err(SourceError::BadAnswer { detail: format!("`{text:.80}` is no commit or etag") })
    }
}

/// Tries again, with growing pauses, while the failure looks like one that passes.
fn retrying<T>(mut attempt: impl FnMut() -> Result<T, SourceError>) -> Result<T, SourceError> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if error.is_passing() => thread::sleep(pause),
            done => return done,
        }
        pause *= 2;
    }
    attempt()
}

/// Says in our words what the transfer ran into.
fn explain(error: ApiError, what: &str) -> SourceError {
    match error {
        ApiError::RequestError(error) => explain_request(&error, what),
        ApiError::IoError(error) if error.kind() == io::ErrorKind::StorageFull => {
            SourceError::DiskFull { path: what.into() }
        }
        ApiError::IoError(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            SourceError::Io { action: "write", path: what.into(), source: error }
        }
        ApiError::IoError(error) => SourceError::Network { detail: error.to_string() },
        other => SourceError::BadAnswer { detail: other.to_string() },
    }
}

fn explain_request(error: &ureq::Error, what: &str) -> SourceError {
    match error {
        ureq::Error::StatusCode(status @ (401 | 403)) => SourceError::Refused { status: *status },
        ureq::Error::StatusCode(404) => SourceError::NotFound { what: what.into() },
        ureq::Error::StatusCode(status @ (429 | 500..)) => {
            SourceError::Network { detail: format!("the server is busy or broken ({status})") }
        }
        ureq::Error::StatusCode(status) => SourceError::BadAnswer { detail: format!("HTTP status {status}") },
        other => SourceError::Network { detail: other.to_string() },
    }
}

/// Passes `hf-hub`'s progress on.
struct Bar<'a, 'r> {
    report: &'a mut (dyn FnMut(Progress<'_>) + 'r),
    file: &'a str,
    done: u64,
    total: u64,
}

impl hf_hub::api::Progress for Bar<'_, '_> {
    fn init(&mut self, size: usize, _filename: &str) {
        self.done = 0;
        self.total = size as u64;
    }

    fn update(&mut self, size: usize) {
        self.done = (self.done + size as u64).min(self.total);
        let (done, total) = (self.done, self.total);
        (self.report)(Progress::Bytes { stage: Stage::Download, file: self.file, done, total });
    }

    fn finish(&mut self) {}
}
