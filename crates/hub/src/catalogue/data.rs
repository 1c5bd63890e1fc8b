//! Reads `catalogue.toml`, the one file that says which names there are. It is part of the program and checked by its tests, so
//! whatever is wrong with it is a mistake of this source tree, not of a user.

use serde::Deserialize;

use super::{Entry, FileSpec, PinnedRepo, PipPackage, Source};
use crate::checksum::Sha256;

const TEXT: &str = include_str!("../../catalogue.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    model: Vec<Model>,
}

/// One model as it is written down.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    name: String,
    #[serde(default)]
    aliases: Vec<String>,
    about: String,
    parameters: String,
    license: String,
    can: Vec<String>,
    repo: String,
    #[serde(default)]
    revision: Option<String>,
    /// The GGUF file that is fetched unless another quantization is asked for; none for safetensors.
    #[serde(default)]
    file: Option<String>,
    /// About so many GB; for models without `files`.
    #[serde(default)]
    size: f64,
    /// The same model in the Ollama registry: the first name is fetched, any of them is used where Ollama has it already.
    #[serde(default)]
    ollama: Vec<String>,
    #[serde(default)]
    pip: Option<Pip>,
    /// The exact files, where they are known.
    #[serde(default)]
    files: Vec<ExactFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pip {
    package: String,
    version: String,
    bytes: u64,
    prefix: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExactFile {
    path: String,
    bytes: u64,
    sha256: Sha256,
}

/// The built-in entries; they live as long as the program.
pub(super) fn entries() -> &'static [Entry] {
    let document: Document = toml::from_str(TEXT).unwrap_or_else(|error| panic!("catalogue.toml: {error}"));
    document.model.into_iter().map(Model::entry).collect::<Vec<_>>().leak()
}

impl Model {
    fn entry(self) -> Entry {
        let pip = self.pip.map(|pip| {
            Source::Pip(PipPackage {
                name: forever(pip.package),
                version: forever(pip.version),
                wheel_bytes: pip.bytes,
                prefix: forever(pip.prefix),
            })
        });
        let repo = PinnedRepo {
            repo: forever(self.repo),
            revision: self.revision.map_or("main", forever),
            file: self.file.map(forever),
        };
        let ollama = all_forever(self.ollama);
        let registry = ollama.first().map(|name| Source::Ollama(name));
        Entry {
            folder: forever(self.name.replace(':', "-")),
            name: forever(self.name),
            aliases: all_forever(self.aliases),
            about: forever(self.about),
            parameters: forever(self.parameters),
            license: forever(self.license),
            capabilities: all_forever(self.can),
            approximate_bytes: (self.size * 1e9) as u64,
            sources: pip
                .into_iter()
                .chain([Source::HuggingFace(repo)])
                .chain(registry)
                .collect::<Vec<_>>()
                .leak(),
            files: self.files.into_iter().map(ExactFile::spec).collect::<Vec<_>>().leak(),
            ollama,
        }
    }
}

impl ExactFile {
    fn spec(self) -> FileSpec {
        FileSpec { path: forever(self.path), bytes: self.bytes, sha256: self.sha256 }
    }
}

fn forever(text: String) -> &'static str {
    text.leak()
}

fn all_forever(texts: Vec<String>) -> &'static [&'static str] {
    texts.into_iter().map(forever).collect::<Vec<_>>().leak()
}
