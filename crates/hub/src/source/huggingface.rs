//! Fetches files of a Hugging Face repository into the cache its own tools share, and uses what they put there.
//!
//! ```text
//! list the repository -> choose files -> ask for their sizes -> is there room? -> bring each -> check each
//! out of reach, offline -> the snapshot that is here, if it is whole
//! ```
//! The etag of a large file is its sha256. Must never: use a name from the server as a path before it was parsed, or keep a file
//! that does not fit its checksum.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::cache::{RepoCache, create_parent};
use super::http::{Ask, Client, header, total_of_range};
use super::retry::retrying;
use super::selection::{self, Choice, Wish};
use super::transfer::{self, Transfer};
use super::{Fetched, Place, Surroundings, parts, space};
use crate::catalogue::FileSpec;
use crate::checksum::{self, Copied, Sha256};
use crate::error::SourceError;
use crate::lock::Lock;
use crate::manifest::{FileRecord, Owner, RelativePath};
use crate::progress::{Progress, Report};

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

/// What the hub says of a file.
#[derive(Debug)]
struct About {
    /// Where its bytes go in the cache.
    blob: PathBuf,
    commit: String,
    size: u64,
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
        let client = Client::new(&hub.endpoint, hub.token.clone(), around.config.patience, around.cancel);
        Remote { around, request, client, cache: RepoCache::new(&hub.cache, request.repo) }
    }

    /// A hub that can't be reached is not tried again: the user should hear so at once. One that is merely busy is.
    fn listing(&self) -> Result<Listing, SourceError> {
        if self.around.config.offline {
            return Err(SourceError::Offline);
        }
        let Request { repo, revision, .. } = self.request;
        let endpoint = &self.around.config.hugging_face.endpoint;
        let url = format!("{endpoint}/api/models/{repo}/revision/{}", escaped(revision));
        let ask = Ask { url: &url, what: repo, ..Ask::default() };
        let body = retrying(self.around.cancel, || match self.client.read(ask) {
            Err(error @ SourceError::Network { .. }) => Ok(Err(error)),
            answer => answer.map(Ok),
        });
        let body = body.and_then(|answer| answer).map_err(|error| self.with_page(error))?;
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

    fn fetch(&self, listing: Listing, report: Report<'_>) -> Result<Fetched, SourceError> {
        let listed: Vec<String> = listing.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
        let snapshot = self.cache.snapshot(plain_name(&listing.sha)?);
        let choice = self.request.choose(&listed)?;
        self.tell_choice(&choice, report);
        let missing = choice.files.iter().filter(|path| !path.below(&snapshot).exists());
        let missing: Vec<_> =
            missing.map(|path| Ok((path, self.about(path)?))).collect::<Result<_, SourceError>>()?;
        self.check_room(missing.iter().map(|(_, about)| about))?;
        for (path, about) in &missing {
            self.bring(path, about, report)?;
            if !path.below(&snapshot).exists() {
                let detail = format!("`{path}` changed while it was being fetched");
                return Err(SourceError::BadAnswer { detail });
            }
        }
        let fetched: Vec<_> = missing.into_iter().map(|(path, _)| path.clone()).collect();
        self.checked(&choice.files, &fetched, snapshot, report)
    }

    /// The model as the cache has it, where that is whole; `error` says why the hub was not asked.
    fn cached(&self, error: SourceError, report: Report<'_>) -> Result<Fetched, SourceError> {
        let Some(commit) = self.cache.commit(self.request.revision) else { return Err(error) };
        let snapshot = self.cache.snapshot(&commit);
        let Ok(choice) = self.request.choose(&self.cache.files(&commit)) else { return Err(error) };
        let is_whole =
            parts::is_whole(&choice.files) && choice.files.iter().all(|path| path.below(&snapshot).exists());
        if !is_whole {
            return Err(error);
        }
        self.tell_choice(&choice, report);
        self.checked(&choice.files, &[], snapshot, report)
    }

    fn tell_choice(&self, choice: &Choice, report: Report<'_>) {
        let [first, ..] = choice.others.as_slice() else { return };
        let others: Vec<&str> = choice.others.iter().map(|quant| quant.as_str()).collect();
        let example = format!("{}:{first}", self.request.repo);
        report(Progress::Chosen { chosen: choice.files[0].as_str(), others: &others, example: &example });
    }

    /// Reads all files again and notes what they are; `fetched` came just now, the others were there before.
    fn checked(
        &self,
        files: &[RelativePath],
        fetched: &[RelativePath],
        snapshot: PathBuf,
        report: Report<'_>,
    ) -> Result<Fetched, SourceError> {
        let mut records = Vec::new();
        for path in files {
            let owner = if fetched.contains(path) { Owner::Ropeway } else { Owner::Others };
            let copied = self.verify(path, &snapshot, owner, report)?;
            let (bytes, sha256) = (copied.bytes, copied.sha256);
            records.push(FileRecord { path: path.clone(), bytes, sha256, owner });
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
        let told = header(&headers, "x-linked-size").and_then(|size| size.parse().ok());
        let size = match told.or_else(|| total_of_range(&headers)) {
            Some(size) => Some(size),
            None => total_of_range(&retrying(self.around.cancel, || self.client.final_headers(ask))?),
        };
        let etag = header(&headers, "x-linked-etag").or_else(|| header(&headers, "etag"));
        let lacking =
            |name: &str| SourceError::BadAnswer { detail: format!("`{path}` comes without {name}") };
        let etag = etag.ok_or_else(|| lacking("an etag"))?;
        let etag = etag.trim_start_matches("W/").replace('"', "");
        let commit = header(&headers, "x-repo-commit").ok_or_else(|| lacking("a commit"))?;
        Ok(About {
            blob: self.cache.blob(plain_name(&etag)?),
            commit: plain_name(&commit)?.to_owned(),
            size: size.ok_or_else(|| lacking("its size"))?,
        })
    }

    /// Whether the disk has room for what is still to come.
    fn check_room<'b>(&self, files: impl Iterator<Item = &'b About>) -> Result<(), SourceError> {
        let missing = |about: &About| match about.is_here() {
            true => 0,
            false => about.size.saturating_sub(transfer::bytes_here(&about.blob, about.size)),
        };
        let needed = files.map(missing).fold(0_u64, u64::saturating_add);
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

    /// Reads the file again: size and sha256 must be the catalogue's, or else what its etag promises. A file that came just now
    /// and is not what it should be is deleted, so that the next pull fetches it afresh.
    fn verify(
        &self,
        path: &RelativePath,
        snapshot: &Path,
        owner: Owner,
        report: Report<'_>,
    ) -> Result<Copied, SourceError> {
        let link = path.below(snapshot);
        let blob = link.canonicalize().map_err(SourceError::io("open", &link))?;
        let copied = checksum::of_file(&blob, path.as_str(), self.around.cancel, report)?;
        let checked = match self.request.spec(path) {
            Some(spec) => spec.check(copied),
            None => check_etag(&blob, &link, copied),
        };
        if checked.is_err() && owner == Owner::Ropeway {
            for wrong in [&link, &blob] {
                // The checksum error is the one to report; a file that stays is found wrong again.
                let _ = fs::remove_file(wrong);
            }
        }
        checked.map(|()| copied)
    }
}

impl About {
    fn is_here(&self) -> bool {
        fs::metadata(&self.blob).is_ok_and(|kind| kind.len() == self.size)
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
