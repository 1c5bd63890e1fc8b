//! Models that other programs keep on this machine and that Ropeway can use where they are.
//!
//! They are looked for when somebody asks for a list; a pull by their name makes a note in the store that refers to them. Must
//! never: write or delete anything outside the store.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Hub;
use crate::reference::RepoFile;
use crate::source::cache::RepoCache;
use crate::source::ollama::OllamaStore;
use crate::source::parts;
use crate::source::selection::{self, Wish};
use crate::store::Installed;

/// A model of another program's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// The name to pull or run it by.
    pub name: String,
    /// Whose it is, in words.
    pub source: &'static str,
    /// The file, or the folder.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

impl Hub {
    /// Models in Ollama's store and in the Hugging Face cache that the store does not refer to yet, by name.
    pub fn elsewhere(&self) -> Vec<Elsewhere> {
        let known = self.list().map(|listing| listing.models).unwrap_or_default();
        let mut found = in_ollama(&self.config.ollama.models);
        found.extend(in_hugging_face(&self.config.hugging_face.cache));
        found.retain(|model| !known.iter().any(|installed| refers_to(installed, &model.path)));
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }
}

fn refers_to(installed: &Installed, path: &Path) -> bool {
    installed.root() == path || installed.files().files.iter().any(|file| file.path == path)
}

fn in_ollama(models: &Path) -> Vec<Elsewhere> {
    let store = OllamaStore { models };
    let all = store.all().into_iter();
    all.map(|found| Elsewhere {
        name: found.name.to_string(),
        source: "Ollama",
        path: found.blob,
        bytes: found.bytes,
    })
    .collect()
}

fn in_hugging_face(cache: &Path) -> Vec<Elsewhere> {
    let folders = fs::read_dir(cache).into_iter().flatten().flatten();
    let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|folder| repository(cache, &folder)).collect()
}

/// The model in a repository's part of the cache, if it is whole and of a kind that Ropeway reads.
fn repository(cache: &Path, folder: &str) -> Option<Elsewhere> {
    let name = folder.strip_prefix("models--")?.replacen("--", "/", 1);
    let repo = RepoFile::parse(&name)?.repo;
    let cached = RepoCache::new(cache, &repo);
    let commit = cached.commit("main")?;
    let chosen = selection::choose(&cached.files(&commit), Wish::Any).ok()?.files;
    let path = cached.snapshot(&commit);
    let sizes = chosen.iter().map(|file| fs::metadata(file.below(&path)).map(|kind| kind.len()).ok());
    let bytes = sizes.sum::<Option<u64>>()?;
    parts::is_whole(&chosen).then_some(Elsewhere {
        name: repo,
        source: "the Hugging Face cache",
        path,
        bytes,
    })
}
