//! One model's files as a set of named tensors and a config, whatever their format.
//!
//! Relies on `gguf` and `huggingface` to read and check the files. Must never keep a path's contents anywhere but in the
//! mappings, and never hand out a tensor that was not checked.

use crate::mapping::Mapping;
use crate::{Tensor, WeightsError, gguf, huggingface};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An opened checkpoint. Cheap to clone: the clones share everything.
#[derive(Debug, Clone)]
pub struct Checkpoint(Arc<Opened>);

/// What the checkpoint says about its model.
#[derive(Debug)]
pub enum Config {
    /// The metadata of a GGUF file.
    Gguf(gguf::Metadata),
    /// The config.json of a Hugging Face folder; always an object.
    HuggingFace(serde_json::Value),
}

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    folder: PathBuf,
    config: Config,
    mappings: Vec<Arc<Mapping>>,
    tensors: BTreeMap<String, Tensor>,
    /// Tensors of a type no weight has, by name.
    unreadable: BTreeMap<String, String>,
}

impl Checkpoint {
    /// Opens a .gguf file (or all parts of a split one, by any of them), a folder with config.json and *.safetensors
    /// (one file, or sharded by model.safetensors.index.json), or a folder holding exactly one GGUF model.
    pub fn open(path: &Path) -> Result<Checkpoint, WeightsError> {
        let about = std::fs::metadata(path)
            .map_err(|source| WeightsError::Unreadable { path: path.to_owned(), source })?;
        let opened = if about.is_dir() { open_folder(path)? } else { open_file(path, path)? };
        Ok(Checkpoint(Arc::new(opened)))
    }

    /// What the checkpoint says about its model.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// The tensor of that name, or an error that names it.
    pub fn tensor(&self, name: &str) -> Result<Tensor, WeightsError> {
        self.find(name).ok_or_else(|| self.why_not(name))
    }

    /// The tensor of that name, if there is a readable one.
    pub fn find(&self, name: &str) -> Option<Tensor> {
        self.0.tensors.get(name).cloned()
    }

    /// The names of all readable tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.tensors.keys().map(String::as_str)
    }

    /// The path as it was given to [`Self::open`].
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The folder the files lie in, where tokenizer files are to be looked for.
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// The length of all weight files together.
    pub fn file_bytes(&self) -> u64 {
        self.0.mappings.iter().map(|mapping| mapping.bytes().len() as u64).sum()
    }

    /// Lets the kernel drop the file pages read so far, so that resident memory falls once the weights are packed.
    /// Tensors stay readable; reading them again pages them in again.
    pub fn release_pages(&self) {
        for mapping in &self.0.mappings {
            mapping.release();
        }
    }

    fn why_not(&self, name: &str) -> WeightsError {
        let (path, name) = (self.0.path.clone(), name.to_owned());
        match self.0.unreadable.get(&name) {
            Some(dtype) => WeightsError::UnsupportedType { path, name, dtype: dtype.clone() },
            None => WeightsError::MissingTensor { path, name },
        }
    }
}

fn open_folder(path: &Path) -> Result<Opened, WeightsError> {
    let mut ggufs = huggingface::files_with_extension(path, "gguf")?;
    ggufs.retain(|file| gguf::split::begins_a_model(file));
    match (huggingface::recognises(path), ggufs.as_slice()) {
        (true, _) => open_huggingface(path),
        (false, [file]) => open_file(path, file),
        (false, []) => Err(WeightsError::NoModel { path: path.to_owned() }),
        (false, several) => Err(WeightsError::SeveralModels { path: path.to_owned(), count: several.len() }),
    }
}

fn open_huggingface(path: &Path) -> Result<Opened, WeightsError> {
    let huggingface::Folder { config, mappings, tensors, unreadable } = huggingface::open(path)?;
    Ok(Opened {
        path: path.to_owned(),
        folder: path.to_owned(),
        config: Config::HuggingFace(config),
        mappings,
        tensors,
        unreadable,
    })
}

fn open_file(path: &Path, file: &Path) -> Result<Opened, WeightsError> {
    let gguf::split::Parts { metadata, mappings, tensors } = gguf::split::open(file)?;
    Ok(Opened {
        path: path.to_owned(),
        folder: file.parent().unwrap_or(Path::new("")).to_owned(),
        config: Config::Gguf(metadata),
        mappings,
        tensors,
        unreadable: BTreeMap::new(),
    })
}
