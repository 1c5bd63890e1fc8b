//! A model on this machine: its name, and the files it consists of.

use std::fs;
use std::path::{Path, PathBuf};

use crate::checksum::Sha256;
use crate::error::HubError;

/// A model whose files are all there.
#[derive(Debug, Clone)]
pub struct ModelFiles {
    /// The name to show: the model's own, or the path as given.
    pub name: String,
    /// The folder the files lie in.
    pub root: PathBuf,
    /// The files, in the order of the manifest, or of their names.
    pub files: Vec<ModelFile>,
}

/// One file of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFile {
    /// The whole path.
    pub path: PathBuf,
    /// The size.
    pub bytes: u64,
}

impl ModelFiles {
    /// What to open: the one GGUF model where there is exactly one (the first of its parts, if it is split), else the folder.
    pub fn checkpoint(&self) -> &Path {
        let mut ggufs = self.files.iter().filter(|file| begins_a_gguf(&file.path));
        match (ggufs.next(), ggufs.next()) {
            (Some(only), None) => &only.path,
            _ => &self.root,
        }
    }

    /// The size of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// A file or folder of the user's own.
    pub(crate) fn local(path: &Path) -> Result<ModelFiles, HubError> {
        let kind = fs::metadata(path).map_err(|_| HubError::NoSuchPath { path: path.to_owned() })?;
        let name = path.display().to_string();
        if kind.is_dir() {
            return Ok(ModelFiles { name, root: path.to_owned(), files: files_of(path)? });
        }
        let root = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(ModelFiles { name, root, files: vec![ModelFile { path: path.to_owned(), bytes: kind.len() }] })
    }
}

/// Whether a GGUF model is opened by this file: not by a later part of a split one.
fn begins_a_gguf(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_gguf = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let is_blob = name.strip_prefix("sha256-").and_then(Sha256::parse).is_some();
    (is_gguf && !is_later_part(name)) || is_blob
}

/// `…-00002-of-00003.gguf`, and the like.
fn is_later_part(name: &str) -> bool {
    let numbers = name.rsplit_once('.').and_then(|(stem, _)| stem.rsplit_once("-of-"));
    let number = numbers.and_then(|(start, count)| (count.len() == 5).then(|| start.rsplit_once('-'))?);
    number.is_some_and(|(_, number)| number.len() == 5 && number.parse().is_ok_and(|number: u32| number > 1))
}

/// The plain files directly in a folder, by name; folders in it are no concern of a checkpoint.
fn files_of(folder: &Path) -> Result<Vec<ModelFile>, HubError> {
    let entries = fs::read_dir(folder).map_err(HubError::io("read the folder", folder))?;
    let mut files: Vec<ModelFile> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| fs::metadata(entry.path()).ok().map(|kind| (entry.path(), kind)))
        .filter(|(_, kind)| kind.is_file())
        .map(|(path, kind)| ModelFile { path, bytes: kind.len() })
        .collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}
