//! Models that Ollama keeps on this machine, used where they are.
//!
//! ```text
//! <models>/manifests/registry.ollama.ai/library/llama3.2/1b   what it consists of
//!         /blobs/sha256-<digits>                              its layers
//! ```
//! Must never: write or delete anything here.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::manifest::{self, Weights};
use crate::reference::OllamaName;

/// The host whose models have short names.
const HOST: &str = "registry.ollama.ai";

/// Ollama's store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OllamaStore<'a> {
    pub models: &'a Path,
}

/// A model that Ollama has.
#[derive(Debug)]
pub(crate) struct Found {
    pub name: OllamaName,
    /// The file with its weights.
    pub blob: PathBuf,
    pub bytes: u64,
}

impl OllamaStore<'_> {
    /// The weights of a model that is here, whole by its size.
    pub(crate) fn find(&self, name: &OllamaName) -> Option<Weights> {
        let OllamaName { namespace, name, tag } = name;
        let weights = read(&self.manifests().join(namespace).join(name).join(tag))?;
        let blob = self.blobs().join(weights.file_name());
        fs::metadata(blob).is_ok_and(|kind| kind.len() == weights.bytes).then_some(weights)
    }

    /// Every model that is here.
    pub(crate) fn all(&self) -> Vec<Found> {
        let mut found = Vec::new();
        for namespace in entries(&self.manifests()) {
            for name in entries(&self.manifests().join(&namespace)) {
                for tag in entries(&self.manifests().join(&namespace).join(&name)) {
                    let name = OllamaName::parse(&format!("{namespace}/{name}:{tag}"));
                    found.extend(name.and_then(|name| self.found(name)));
                }
            }
        }
        found
    }

    fn found(&self, name: OllamaName) -> Option<Found> {
        let weights = self.find(&name)?;
        Some(Found { name, blob: self.blobs().join(weights.file_name()), bytes: weights.bytes })
    }

    /// Where layers lie.
    pub(crate) fn blobs(&self) -> PathBuf {
        self.models.join("blobs")
    }

    fn manifests(&self) -> PathBuf {
        self.models.join("manifests").join(HOST)
    }
}

/// What a manifest says, if it can be used.
fn read(path: &Path) -> Option<Weights> {
    let mut json = Vec::new();
    File::open(path).ok()?.take(manifest::LARGEST).read_to_end(&mut json).ok()?;
    Weights::of_manifest(&json).ok()
}

/// The names in a folder, sorted; none if it can't be read.
fn entries(folder: &Path) -> Vec<String> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = all.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}
