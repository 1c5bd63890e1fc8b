//! The store's note about one model: where its files are, how large, with which checksum, from whom, since when.
//!
//! It lies as `manifest.json` in the model's folder. Anyone may have edited it, so paths are parsed into
//! [`RelativePath`], which cannot leave its folder. Must never: be written before the files it speaks of are checked.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::checksum::Sha256;
use crate::reference::ModelId;
use crate::source::{Fetched, Place};

/// The manifest's name in the model's folder.
pub(crate) const FILE_NAME: &str = "manifest.json";

/// A manifest larger than this is not one of ours: a thousand files need about 200 kB.
pub(crate) const LARGEST: u64 = 4 << 20;

/// What the store knows about one model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    /// The name it was pulled by.
    pub name: String,
    /// The source that delivered it, in words.
    pub source: String,
    /// The folder the files lie in when it is not the model's own (the Hugging Face cache, or Ollama's store).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_root: Option<PathBuf>,
    /// The files.
    pub files: Vec<FileRecord>,
    /// When it was pulled, in seconds since 1970.
    pub pulled_at: u64,
}

/// One file of a pulled model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileRecord {
    /// Where it lies below the root.
    pub path: RelativePath,
    /// Its size.
    pub bytes: u64,
    /// Its checksum when it was pulled.
    pub sha256: Sha256,
    /// Who put it there, which decides whether removing the model deletes it.
    pub owner: Owner,
}

/// Who put a file where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// Ropeway fetched it.
    Ropeway,
    /// It was in the shared cache before.
    Others,
}

/// A path that stays inside its folder: relative, with `/`, of plain components, fit for a URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelativePath(String);

impl Manifest {
    /// Notes what was fetched just now.
    pub(crate) fn new(id: &ModelId, fetched: Fetched) -> Manifest {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let shared_root = match fetched.place {
            Place::Staged => None,
            Place::Shared(root) => Some(root),
        };
        Manifest {
            name: id.name.clone(),
            source: fetched.source,
            shared_root,
            files: fetched.files,
            pulled_at: now,
        }
    }

    /// Files that Ropeway had put where they are stay its own when a later pull finds them there.
    pub(crate) fn keep_owners(mut self, before: Option<&Manifest>) -> Manifest {
        let Some(before) = before.filter(|before| before.shared_root == self.shared_root) else {
            return self;
        };
        for file in &mut self.files {
            let known = before.files.iter().find(|other| other.path == file.path);
            if known.is_some_and(|other| other.owner == Owner::Ropeway) {
                file.owner = Owner::Ropeway;
            }
        }
        self
    }

    /// The size of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

impl RelativePath {
    /// The path, or `None` when it could leave its folder or break a URL.
    pub fn parse(text: &str) -> Option<RelativePath> {
        let plain = |part: &str| !matches!(part, "" | "." | "..");
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-+=@,/".contains(c);
        let fits = text.len() <= 512 && text.split('/').all(plain) && text.chars().all(allowed);
        fits.then(|| RelativePath(text.to_owned()))
    }

    /// The path with `/` between components.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path below `root`.
    pub fn below(&self, root: &Path) -> PathBuf {
        self.0.split('/').fold(root.to_owned(), |path, part| path.join(part))
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RelativePath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        RelativePath::parse(&text).ok_or_else(|| format!("`{text}` is not a path inside the model's folder"))
    }
}

impl From<RelativePath> for String {
    fn from(path: RelativePath) -> String {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_could_leave_its_folder_is_refused() {
        for bad in
            ["", "/x", "../x", "a/../b", "a/", "a//b", "./a", "C:\\x", "a\\b", "a b", "a?b", "a%2e", "\u{e9}"]
        {
            assert_eq!(RelativePath::parse(bad), None, "{bad}");
        }
        for good in ["a", "1_Pooling/config.json", "model-00001-of-00002.safetensors", ".hidden", "a..b"] {
            assert!(RelativePath::parse(good).is_some(), "{good}");
        }
    }

    #[test]
    fn a_manifest_with_an_escaping_path_does_not_parse() {
        let json = |path: &str| {
            let sum = Sha256::of(b"");
            format!(
                r#"{{"name":"x","source":"y","pulled_at":1,"files":[
                    {{"path":"{path}","bytes":0,"sha256":"{sum}","owner":"ropeway"}}]}}"#
            )
        };
        assert!(serde_json::from_str::<Manifest>(&json("model.gguf")).is_ok());
        assert!(serde_json::from_str::<Manifest>(&json("../../.bashrc")).is_err());
    }
}
