//! `org/repo[@revision][:file]`: a repository on the Hugging Face hub.

use std::fmt;

use super::ModelId;
use crate::manifest::RelativePath;

/// The longest organisation or repository name the Hugging Face hub allows.
const LONGEST_REPO_PART: usize = 96;

/// A repository on the Hugging Face hub, and perhaps one file of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoFile {
    /// `org/repo`, both parts well-formed.
    pub repo: String,
    /// A branch, tag or commit; the branch `main` if none is named.
    pub revision: Option<Revision>,
    /// The file, a quantization, or a telling part of the file's name.
    pub file: Option<RelativePath>,
}

/// A branch, tag or commit: words of letters, digits, `.`, `_` and `-` between slashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision(String);

impl RepoFile {
    /// Understands `org/repo[@revision][:file]`, also with the hub's address in front of it.
    pub fn parse(text: &str) -> Option<RepoFile> {
        let text = without_address(text);
        let (text, file) = match text.split_once(':') {
            Some((repo, file)) => (repo, Some(RelativePath::parse(file)?)),
            None => (text, None),
        };
        let (repo, revision) = match text.split_once('@') {
            Some((repo, revision)) => (repo, Some(Revision::parse(revision)?)),
            None => (text, None),
        };
        let (org, name) = repo.split_once('/')?;
        (is_repo_part(org) && is_repo_part(name)).then(|| RepoFile { repo: repo.into(), revision, file })
    }

    /// The revision's name.
    pub fn revision(&self) -> &str {
        self.revision.as_ref().map_or("main", Revision::as_str)
    }

    /// `org--repo[@revision][--file]`: a repository's parts never hold `--`, so different repositories never share a
    /// folder, nor does one share a folder with the catalogue. No revision holds `=`.
    pub(super) fn id(&self) -> ModelId {
        let repo = self.repo.replace('/', "--");
        let revision = self.revision.as_ref().map(|revision| format!("@{}", revision.0.replace('/', "=")));
        let file = self.file.as_ref().map(|file| format!("--{}", file.as_str().replace('/', "--")));
        let folder = [repo, revision.unwrap_or_default(), file.unwrap_or_default()].concat();
        ModelId { name: self.to_string(), folder }
    }

    /// The name that a folder of the store was made from, as far as it tells.
    pub(super) fn name_of_folder(folder: &str) -> String {
        let name = folder.replacen("--", "/", 1).replacen("--", ":", 1);
        match name.split_once('@') {
            Some((repo, rest)) => format!("{repo}@{}", rest.replace('=', "/")),
            None => name,
        }
    }
}

impl Revision {
    /// The revision, or `None` when it could leave a folder or break a URL.
    pub fn parse(text: &str) -> Option<Revision> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let fits = RelativePath::parse(text).is_some() && text.chars().all(allowed);
        fits.then(|| Revision(text.to_owned()))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RepoFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repo)?;
        if let Some(revision) = &self.revision {
            write!(f, "@{}", revision.0)?;
        }
        if let Some(file) = &self.file {
            write!(f, ":{file}")?;
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_understood_with_and_without_revision_file_and_address() {
        for (text, repo, revision, file) in [
            ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", "main", None),
            ("a/b:c.gguf", "a/b", "main", Some("c.gguf")),
            ("a/b:sub/c.gguf", "a/b", "main", Some("sub/c.gguf")),
            ("https://huggingface.co/a/b", "a/b", "main", None),
            ("hf.co/a/b:Q4_K_M", "a/b", "main", Some("Q4_K_M")),
            ("a/b@v1.0", "a/b", "v1.0", None),
            ("hf.co/a/b@refs/pr/7:Q8_0", "a/b", "refs/pr/7", Some("Q8_0")),
        ] {
            let found = RepoFile::parse(text).unwrap();
            let parts =
                (found.repo.as_str(), found.revision(), found.file.as_ref().map(RelativePath::as_str));
            assert_eq!(parts, (repo, revision, file), "{text}");
        }
        for bad in ["a/b@", "a/b@../c", "a/b@x y", "a@v1/b", "a/b@v=1", "a/b@v:"] {
            assert_eq!(RepoFile::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn different_repositories_have_different_folders_that_tell_their_names() {
        let folder = |text: &str| RepoFile::parse(text).unwrap().id().folder;
        assert_eq!(folder("a/b"), "a--b");
        assert_eq!(folder("a/b:sub/c.gguf"), "a--b--sub--c.gguf");
        assert_eq!(folder("a/b@refs/pr/7:c.gguf"), "a--b@refs=pr=7--c.gguf");
        assert_ne!(folder("a-b/c"), folder("a/b-c"));
        for name in ["a/b", "a/b:c.gguf", "a/b@refs/pr/7:c.gguf"] {
            assert_eq!(RepoFile::name_of_folder(&folder(name)), name);
        }
    }
}
