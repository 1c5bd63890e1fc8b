//! Fetches files of a Hugging Face repository into the cache its own tools share.
//!
//! A transfer grows a `.part` file in that cache ([`super::cache`]), which the next attempt, or the next pull, continues. This
//! module decides what to fetch, tries again when the connection breaks, and checks what came: the etag of a large file is its
//! sha256. Must never: use a name from the server as a path before it was parsed, or keep a file that does not fit its
//! checksum.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::cache::{RepoCache, create_parent};
use super::http::{About, Client, Rest};
use super::{Fetched, Place, Surroundings, selection};
use crate::catalogue::{FileSpec, PinnedRepo};
use crate::checksum::{self, Copied, Sha256};
use crate::error::SourceError;
use crate::lock::Lock;
use crate::manifest::{FileRecord, Owner, RelativePath};
use crate::progress::{Progress, Report, Stage};
use crate::reference::RepoFile;

/// How often a broken transfer is taken up again before the pull gives up.
const ATTEMPTS: u32 = 5;

/// The pause before the second attempt; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// How much is read at once: large enough that system calls do not count.
const CHUNK: usize = 256 * 1024;

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

/// A repository's listing, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Listing {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Debug, Deserialize)]
struct Sibling {
    rfilename: String,
}

/// Fetches what is not in the cache yet, and checks everything. Only transfers are tried again: a hub that does not even
/// list the repository is out of reach, and the user should hear so at once.
pub(crate) fn fetch(
    around: &Surroundings<'_>,
    request: &Request<'_>,
    report: Report<'_>,
) -> Result<Fetched, SourceError> {
    let remote = Remote::new(around, request);
    let listing = remote.listing()?;
    let listed: Vec<String> = listing.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
    let snapshot = remote.cache.snapshot(plain_name(&listing.sha)?);
    let mut files = Vec::new();
    for path in request.choose(&listed)? {
        let owner = remote.bring(&path, &snapshot, report)?;
        let copied = remote.verify(&path, &snapshot, request.spec(&path), report)?;
        files.push(FileRecord { path, bytes: copied.bytes, sha256: copied.sha256, owner });
    }
    Ok(Fetched { place: Place::Shared(snapshot), files, source: request.label() })
}

/// A repository, and the cache its files go to.
struct Remote<'a> {
    around: &'a Surroundings<'a>,
    request: &'a Request<'a>,
    client: Client,
    cache: RepoCache,
}

impl<'a> Remote<'a> {
    fn new(around: &'a Surroundings<'a>, request: &'a Request<'a>) -> Remote<'a> {
        let hub = &around.config.hugging_face;
        let client = Client::new(hub, around.config.patience, around.cancel);
        Remote { around, request, client, cache: RepoCache::new(&hub.cache, request.repo) }
    }

    fn listing(&self) -> Result<Listing, SourceError> {
        let Request { repo, revision, .. } = self.request;
        let endpoint = &self.around.config.hugging_face.endpoint;
        let body = self.client.read(&format!("{endpoint}/api/models/{repo}/revision/{revision}"), repo)?;
        serde_json::from_slice(&body).map_err(|error| SourceError::BadAnswer { detail: error.to_string() })
    }

    fn url(&self, path: &RelativePath) -> String {
        let Request { repo, revision, .. } = self.request;
        format!("{}/{repo}/resolve/{revision}/{path}", self.around.config.hugging_face.endpoint)
    }

    /// Makes sure the file is in the snapshot; says who put it there.
    fn bring(&self, path: &RelativePath, snapshot: &Path, report: Report<'_>) -> Result<Owner, SourceError> {
        if path.below(snapshot).exists() {
            return Ok(Owner::Others);
        }
        self.retrying(|| self.download(path, report))?;
        if path.below(snapshot).exists() {
            return Ok(Owner::Ropeway);
        }
        Err(SourceError::BadAnswer { detail: format!("`{path}` changed while it was being fetched") })
    }

    /// Tries again, with growing pauses, while the failure looks like one that passes.
    fn retrying<T>(&self, mut attempt: impl FnMut() -> Result<T, SourceError>) -> Result<T, SourceError> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..ATTEMPTS {
            match attempt() {
                Err(error) if error.is_passing() => self.around.cancel.pause(pause)?,
                done => return done,
            }
            pause *= 2;
        }
        attempt()
    }

    /// One attempt; it continues the `.part` file a broken one left. The same blob may belong to several models, whose pulls
    /// do not hold the same lock, so it has one of its own.
    fn download(&self, path: &RelativePath, report: Report<'_>) -> Result<(), SourceError> {
        let about = self.client.about(&self.url(path), path.as_str())?;
        let (blob, commit) = (self.cache.blob(plain_name(&about.etag)?), plain_name(&about.commit)?);
        create_parent(&blob)?;
        let _lock = Lock::acquire(&blob.with_extension("lock"), self.around.cancel, || ())
            .map_err(SourceError::from_lock)?;
        if !fs::metadata(&blob).is_ok_and(|kind| kind.len() == about.size) {
            self.transfer(path, &blob, &about, report)?;
        }
        self.cache.link(&blob, commit, path)?;
        self.cache.note(self.request.revision, commit)
    }

    /// Grows the part file to its whole length and gives it the blob's name.
    fn transfer(
        &self,
        path: &RelativePath,
        blob: &Path,
        about: &About,
        report: Report<'_>,
    ) -> Result<(), SourceError> {
        let part = Part::open(blob, about.size)?;
        let rest = self.client.rest(&self.url(path), part.length, path.as_str())?;
        let mut on_bytes = |done| {
            let (file, total) = (path.as_str(), about.size);
            report(Progress::Bytes { stage: Stage::Download, file, done, total });
        };
        part.append(rest, about.size, &mut on_bytes)?.finish(blob)
    }

    /// Reads the file again: size and sha256 must be the catalogue's, or else what its etag promises. A file that is not
    /// what it should be is deleted, so that the next pull fetches it afresh.
    fn verify(
        &self,
        path: &RelativePath,
        snapshot: &Path,
        spec: Option<&FileSpec>,
        report: Report<'_>,
    ) -> Result<Copied, SourceError> {
        let link = path.below(snapshot);
        let blob = link.canonicalize().map_err(SourceError::io("open", &link))?;
        let copied = checksum::of_file(&blob, path.as_str(), self.around.cancel, report)?;
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
}

/// The part of a file that is here already.
struct Part {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Part {
    /// What an earlier attempt left. A part that is as long as the whole, or longer, cannot be continued: asking for the
    /// rest of it fails for ever.
    fn open(blob: &Path, whole: u64) -> Result<Part, SourceError> {
        let path = blob.with_extension("part");
        let mut options = File::options();
        let file = options.create(true).append(true).open(&path).map_err(SourceError::io("create", &path))?;
        let mut part = Part { length: 0, path, file };
        part.length = part.file.metadata().map_err(SourceError::io("read", &part.path))?.len();
        if part.length >= whole {
            part.clear()?;
        }
        Ok(part)
    }

    fn clear(&mut self) -> Result<(), SourceError> {
        self.length = 0;
        self.file.set_len(0).map_err(SourceError::io("write", &self.path))
    }

    /// Adds what arrives, up to `whole` bytes in all. What came before a failure stays for the next attempt.
    fn append(
        mut self,
        mut rest: Rest<'_>,
        whole: u64,
        on_bytes: &mut dyn FnMut(u64),
    ) -> Result<Part, SourceError> {
        if rest.start != self.length {
            self.clear()?;
        }
        let mut buffer = vec![0; CHUNK];
        while self.length < whole {
            on_bytes(self.length);
            let most = (whole - self.length).min(CHUNK as u64) as usize;
            let read = rest.body.read(&mut buffer[..most])?;
            if read == 0 {
                let detail = format!("the connection ended after {} of {whole} bytes", self.length);
                return Err(SourceError::Network { detail });
            }
            self.file.write_all(&buffer[..read]).map_err(SourceError::io("write", &self.path))?;
            self.length += read as u64;
        }
        on_bytes(self.length);
        Ok(self)
    }

    fn finish(self, blob: &Path) -> Result<(), SourceError> {
        self.file.sync_all().map_err(SourceError::io("write", &self.path))?;
        fs::rename(&self.path, blob).map_err(SourceError::io("create", blob))
    }
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
