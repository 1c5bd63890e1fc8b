//! What can go wrong between a name and its files. Every error says what happened; [`HubError::hint`] and
//! [`SourceError::hint`] say what the user can do next.

mod source;

pub use source::SourceError;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

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
