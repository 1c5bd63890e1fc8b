//! What a model name means, decided once at the edge.
//!
//! ```text
//! smollm2, smollm2:135m                 a name of the catalogue
//! ./model.gguf, models/mine, /x/y.gguf  a path
//! org/repo                              a Hugging Face repository
//! org/repo:file.gguf, org/repo:Q4_K_M   one file of it, by name or by a part of it
//! ```

use std::fmt;
use std::path::{Path, PathBuf};

use crate::catalogue::{Catalogue, Entry};
use crate::error::HubError;
use crate::manifest::RelativePath;

/// The longest organisation or repository name the Hugging Face hub allows.
const LONGEST_REPO_PART: usize = 96;

/// A model name, understood.
#[derive(Debug, Clone)]
pub enum ModelRef {
    /// A model of the catalogue.
    Catalogue(&'static Entry),
    /// A file or folder of the user's own; it existed when the name was read.
    Local(PathBuf),
    /// Something on the Hugging Face hub.
    HuggingFace(RepoFile),
}

/// A repository on the Hugging Face hub, and perhaps one file of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoFile {
    /// `org/repo`, both parts well-formed.
    pub repo: String,
    /// The file, or a telling part of its name.
    pub file: Option<RelativePath>,
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
            ModelRef::Catalogue(entry) => {
                Ok(ModelId { name: entry.name.into(), folder: entry.folder.into() })
            }
            ModelRef::HuggingFace(file) => Ok(file.id()),
            ModelRef::Local(path) => Err(HubError::YourOwnFile { path: path.clone() }),
        }
    }

    /// Understands everything that is not in the catalogue, as a name only: no path is looked at, and what could be one is as
    /// unknown as any other name that means nothing.
    pub(crate) fn parse_repo(text: &str, catalogue: Catalogue) -> Result<ModelRef, HubError> {
        RepoFile::parse(text).map(ModelRef::HuggingFace).ok_or_else(|| unknown(text, catalogue))
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
        let repo = || folder.replacen("--", "/", 1).replacen("--", ":", 1);
        entry.map_or_else(repo, |entry| entry.name.to_owned())
    }
}

impl RepoFile {
    /// Understands `org/repo[:file]`, also with the hub's address in front of it.
    pub fn parse(text: &str) -> Option<RepoFile> {
        let text = without_address(text);
        let (repo, file) = match text.split_once(':') {
            Some((repo, file)) => (repo, Some(RelativePath::parse(file)?)),
            None => (text, None),
        };
        let (org, name) = repo.split_once('/')?;
        (is_repo_part(org) && is_repo_part(name)).then(|| RepoFile { repo: repo.into(), file })
    }

    /// `org--repo[--file]`: a repository's parts never hold `--`, so different repositories never share a folder, nor
    /// does one share a folder with the catalogue.
    fn id(&self) -> ModelId {
        let name = self.to_string();
        ModelId { folder: name.replace(['/', ':'], "--"), name }
    }
}

impl fmt::Display for RepoFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}:{file}", self.repo),
            None => f.write_str(&self.repo),
        }
    }
}

fn without_address(text: &str) -> &str {
    let addresses = ["https://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/"];
    addresses.iter().find_map(|address| text.strip_prefix(address)).unwrap_or(text)
}

fn is_repo_part(part: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=LONGEST_REPO_PART).contains(&part.len())
        && part.chars().all(allowed)
        && !part.contains("--")
        && !part.contains("..")
        && !part.starts_with(['-', '.'])
        && !part.ends_with(['-', '.'])
}

/// Whether the user surely meant a path: it starts like one, or ends like a file without naming a repository.
fn looks_like_a_path(text: &str) -> bool {
    let starts = ["/", "./", "../", "~", ".\\", "..\\"].iter().any(|start| text.starts_with(start));
    let is_file = [".gguf", ".safetensors"].iter().any(|end| text.ends_with(end)) && !text.contains(':');
    starts || is_file || matches!(text, "." | "..")
}

fn unknown(text: &str, catalogue: Catalogue) -> HubError {
    let known = catalogue.entries().iter().map(|entry| entry.name).collect();
    HubError::UnknownModel { given: text.into(), known }
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
    fn an_existing_path_is_local_and_a_missing_one_is_said_to_be_missing() {
        assert!(matches!(parse("src"), Ok(ModelRef::Local(_))));
        assert!(matches!(parse("."), Ok(ModelRef::Local(_))));
        for text in ["./nothing", "/no/such/model", "nothing.gguf", "some/dir/nothing.gguf", "~/nothing"] {
            assert!(matches!(parse(text), Err(HubError::NoSuchPath { .. })), "{text}");
        }
    }

    #[test]
    fn a_repository_is_understood_with_and_without_file_and_address() {
        for (text, repo, file) in [
            ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", None),
            ("a/b:c.gguf", "a/b", Some("c.gguf")),
            ("a/b:sub/c.gguf", "a/b", Some("sub/c.gguf")),
            ("https://huggingface.co/a/b", "a/b", None),
            ("hf.co/a/b:Q4_K_M", "a/b", Some("Q4_K_M")),
        ] {
            let found = RepoFile::parse(text).unwrap();
            assert_eq!((found.repo.as_str(), found.file.as_ref().map(RelativePath::as_str)), (repo, file));
        }
    }

    #[test]
    fn a_malformed_name_is_unknown_and_the_error_lists_what_would_work() {
        for text in
            ["", "nope", "a/b/c", "a//b", "a/b:", "a/b:../c", "a/b:/etc/passwd", "-a/b", "a--b/c", "a/b c"]
        {
            let error = parse(text).unwrap_err();
            assert!(matches!(error, HubError::UnknownModel { .. }), "{text}: {error}");
            assert!(error.hint().contains("smollm2:135m"), "{text}");
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
        let entry = Catalogue::builtin().find("smollm2").unwrap();
        assert_eq!(name(entry.folder), "smollm2:135m");
    }

    #[test]
    fn different_repositories_have_different_folders() {
        let folder = |text: &str| RepoFile::parse(text).unwrap().id().folder;
        assert_eq!(folder("a/b"), "a--b");
        assert_eq!(folder("a/b:sub/c.gguf"), "a--b--sub--c.gguf");
        assert_ne!(folder("a-b/c"), folder("a/b-c"));
    }
}
