//! What a model name means, decided once at the edge.
//!
//! ```text
//! smollm2, llama3.2:1b, qwen3:0.6b-q8_0 a name of the catalogue
//! ./model.gguf, models/mine, /x/y.gguf  a path
//! org/repo, org/repo@revision           a Hugging Face repository
//! org/repo:file.gguf, org/repo:Q4_K_M   one file of it, by name, quantization or a part of its name
//! ollama:llama3.2:1b                    a model of the Ollama registry, or of Ollama's store on this machine
//! ```

mod ollama;
mod repo;

pub use ollama::OllamaName;
pub use repo::{RepoFile, Revision};

use std::path::{Path, PathBuf};

use crate::catalogue::{Catalogue, Named};
use crate::error::HubError;

/// A model name, understood.
#[derive(Debug, Clone)]
pub enum ModelRef {
    /// A model of the catalogue.
    Catalogue(Named),
    /// A file or folder of the user's own; it existed when the name was read.
    Local(PathBuf),
    /// Something on the Hugging Face hub.
    HuggingFace(RepoFile),
    /// Something in the Ollama registry.
    Ollama(OllamaName),
}

/// How the store knows a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelId {
    /// The name shown to the user.
    pub name: String,
    /// The folder under `models/`; one path component.
    pub folder: String,
}

impl ModelRef {
    /// How the store knows this model; a local path is not in the store.
    pub fn id(&self) -> Result<ModelId, HubError> {
        match self {
            ModelRef::Catalogue(named) => Ok(named.id()),
            ModelRef::HuggingFace(file) => Ok(file.id()),
            ModelRef::Ollama(name) => Ok(name.id()),
            ModelRef::Local(path) => Err(HubError::YourOwnFile { path: path.clone() }),
        }
    }

    /// Understands everything that is not in the catalogue, as a name only: no path is looked at, and what could be one is as
    /// unknown as any other name that means nothing.
    pub(crate) fn parse_repo(text: &str, catalogue: Catalogue) -> Result<ModelRef, HubError> {
        let ollama = OllamaName::parse_prefixed(text).map(ModelRef::Ollama);
        let repo = || RepoFile::parse(text).map(ModelRef::HuggingFace);
        ollama.or_else(repo).ok_or_else(|| unknown(text, catalogue))
    }

    /// Understands everything that is not in the catalogue.
    pub(crate) fn parse_path_or_repo(text: &str, catalogue: Catalogue) -> Result<ModelRef, HubError> {
        let path = Path::new(text);
        if !text.is_empty() && path.exists() {
            return Ok(ModelRef::Local(path.to_owned()));
        }
        if looks_like_a_path(text) {
            return Err(HubError::NoSuchPath { path: path.to_owned() });
        }
        ModelRef::parse_repo(text, catalogue)
    }
}

impl ModelId {
    /// The name of the model in a folder whose manifest can't be read, as far as the folder tells.
    pub(crate) fn name_of_folder(folder: &str, catalogue: Catalogue) -> String {
        let entry = catalogue.entries().iter().find(|entry| entry.folder == folder);
        let other = || OllamaName::name_of_folder(folder).unwrap_or_else(|| RepoFile::name_of_folder(folder));
        entry.map_or_else(other, |entry| entry.name.to_owned())
    }
}

impl Named {
    /// Another quantization than the usual one is a model of its own.
    fn id(self) -> ModelId {
        let (name, folder) = (self.entry.name, self.entry.folder);
        let Some(quant) = self.quant else { return ModelId { name: name.into(), folder: folder.into() } };
        let quant = quant.as_str().to_ascii_lowercase();
        ModelId { name: format!("{name}-{quant}"), folder: format!("{folder}-{quant}") }
    }
}

/// Whether the user surely meant a path: it starts like one, or ends like a file without naming a repository.
fn looks_like_a_path(text: &str) -> bool {
    let starts = ["/", "./", "../", "~", ".\\", "..\\"].iter().any(|start| text.starts_with(start));
    let is_file = [".gguf", ".safetensors"].iter().any(|end| text.ends_with(end)) && !text.contains(':');
    starts || is_file || matches!(text, "." | "..")
}

fn unknown(text: &str, catalogue: Catalogue) -> HubError {
    HubError::UnknownModel { given: text.into(), known: catalogue.nearest(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ModelRef, HubError> {
        Catalogue::builtin().parse(text)
    }

    #[test]
    fn a_catalogue_name_is_understood_by_name_and_alias() {
        for text in ["smollm2", "smollm2:135m", "all-minilm"] {
            assert!(matches!(parse(text), Ok(ModelRef::Catalogue(_))), "{text}");
        }
    }

    #[test]
    fn another_quantization_is_another_model() {
        let id = |text| parse(text).unwrap().id().unwrap();
        let (usual, other) = (id("llama3.2:1b"), id("llama3.2:1b-instruct-q8_0"));
        assert_eq!((usual.name.as_str(), usual.folder.as_str()), ("llama3.2:1b", "llama3.2-1b"));
        assert_eq!((other.name.as_str(), other.folder.as_str()), ("llama3.2:1b-q8_0", "llama3.2-1b-q8_0"));
        assert_eq!(id(&other.name), other);
    }

    #[test]
    fn an_existing_path_is_local_and_a_missing_one_is_said_to_be_missing() {
        assert!(matches!(parse("src"), Ok(ModelRef::Local(_))));
        assert!(matches!(parse("."), Ok(ModelRef::Local(_))));
        for text in ["./nothing", "/no/such/model", "nothing.gguf", "some/dir/nothing.gguf", "~/nothing"] {
            assert!(matches!(parse(text), Err(HubError::NoSuchPath { .. })), "{text}");
        }
    }

    #[test]
    fn a_malformed_name_is_unknown_and_the_error_says_what_would_work() {
        for text in
            ["", "nope", "a/b/c", "a//b", "a/b:", "a/b:../c", "a/b:/etc/passwd", "-a/b", "a--b/c", "a/b c"]
        {
            let error = parse(text).unwrap_err();
            assert!(matches!(error, HubError::UnknownModel { .. }), "{text}: {error}");
            assert!(error.hint().contains("ropeway search") && error.hint().contains("org/repo"), "{text}");
        }
    }

    #[test]
    fn a_name_is_never_taken_for_a_path_that_exists() {
        std::fs::metadata("src/source").expect("tests run in the crate's folder");
        for text in
            ["src", ".", "./src", "/etc/passwd", "../hub", "~", "Cargo.toml", "file:///etc", "src/../src"]
        {
            let error = Catalogue::builtin().parse_name(text).unwrap_err();
            assert!(matches!(error, HubError::UnknownModel { .. }), "{text}: {error}");
        }
        let repo = Catalogue::builtin().parse_name("src/source").unwrap();
        assert!(matches!(repo, ModelRef::HuggingFace(_)), "{repo:?}");
    }

    #[test]
    fn a_folder_tells_its_models_name() {
        let name = |folder| ModelId::name_of_folder(folder, Catalogue::builtin());
        assert_eq!(name("org--repo"), "org/repo");
        assert_eq!(name("org--repo--m.gguf"), "org/repo:m.gguf");
        assert_eq!(name("ollama@library--qwen3--0.6b"), "ollama:qwen3:0.6b");
        let entry = Catalogue::builtin().find("smollm2").unwrap();
        assert_eq!(name(entry.folder), "smollm2:135m");
    }
}
