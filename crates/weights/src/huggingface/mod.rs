//! Hugging Face folders: config.json and one or more safetensors files.
//!
//! Which files: `model.safetensors` if it is there; else those `model.safetensors.index.json` names; else every
//! `*.safetensors` of the folder. The single file comes first because some converters leave a stale index beside it.
//!
//! Relies on [`header`] for one file and on [`mlx`] for quantised matrices. Must never open a file outside the folder
//! because an index says so.

mod error;
mod header;
mod index;
mod mlx;

pub use error::{IndexError, MlxError, SafetensorsError};

use crate::mapping::Mapping;
use crate::tensor::Storage;
use crate::{Tensor, WeightsError};
use header::{Dtype, RawTensor};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CONFIG: &str = "config.json";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const EXTENSION: &str = "safetensors";

/// Config and index files of the largest models stay under a tenth of this.
const MAX_JSON_BYTES: u64 = 64 << 20;

/// A folder's contents.
pub(crate) struct Folder {
    pub(crate) config: Value,
    pub(crate) mappings: Vec<Arc<Mapping>>,
    pub(crate) tensors: BTreeMap<String, Tensor>,
    /// Tensors of a type no weight has, by name.
    pub(crate) unreadable: BTreeMap<String, String>,
}

/// The tensors of all files so far.
#[derive(Default)]
struct Shards {
    mappings: Vec<Arc<Mapping>>,
    raw: BTreeMap<String, RawTensor>,
}

/// Whether the folder looks like a Hugging Face model.
pub(crate) fn recognises(folder: &Path) -> bool {
    folder.join(CONFIG).is_file()
}

/// Opens the folder's config and every file with weights.
pub(crate) fn open(folder: &Path) -> Result<Folder, WeightsError> {
    let config = read_config(folder)?;
    let mut shards = open_shards(folder)?;
    let mlx = |source| WeightsError::Mlx { path: folder.to_owned(), source };
    let quantised = mlx::assemble(&config, &mut shards.raw).map_err(mlx)?;
    let mut tensors: BTreeMap<_, _> =
        quantised.into_iter().map(|tensor| (tensor.name().to_owned(), tensor)).collect();
    let mut unreadable = BTreeMap::new();
    for (name, raw) in shards.raw {
        match raw.dtype {
            Dtype::Float(float) => {
                let tensor = Tensor::new(&name, raw.shape, Storage::Float { float, data: raw.data });
                tensors.insert(name, tensor);
            }
            other => {
                unreadable.insert(name, other.to_string());
            }
        }
    }
    Ok(Folder { config, mappings: shards.mappings, tensors, unreadable })
}

fn read_config(folder: &Path) -> Result<Value, WeightsError> {
    let path = folder.join(CONFIG);
    let config: Value = read_json(&path)?;
    if !config.is_object() {
        return Err(WeightsError::ConfigNotAnObject { path });
    }
    match foreign_quantisation(&config) {
        Some(method) => {
            Err(WeightsError::UnsupportedQuantisation { path: folder.to_owned(), method: method.to_owned() })
        }
        None => Ok(config),
    }
}

/// The quantisation method of GPTQ, AWQ and the like; MLX's description has no such field.
fn foreign_quantisation(config: &Value) -> Option<&str> {
    if config.get("quantization").is_some() {
        return None;
    }
    config.get("quantization_config")?.get("quant_method")?.as_str()
}

fn open_shards(folder: &Path) -> Result<Shards, WeightsError> {
    if folder.join(SINGLE).exists() {
        return open_all(vec![folder.join(SINGLE)]);
    }
    if folder.join(INDEX).exists() {
        return index::open(folder);
    }
    match files_with_extension(folder, EXTENSION)? {
        files if files.is_empty() => Err(WeightsError::NoModel { path: folder.to_owned() }),
        files => open_all(files),
    }
}

fn open_all(files: Vec<PathBuf>) -> Result<Shards, WeightsError> {
    let mut shards = Shards::default();
    for path in files {
        for (name, tensor) in shards.open(&path)? {
            if shards.raw.insert(name.clone(), tensor).is_some() {
                return Err(WeightsError::Safetensors { path, source: SafetensorsError::Duplicate { name } });
            }
        }
    }
    Ok(shards)
}

impl Shards {
    /// Maps one more file and returns what it holds.
    fn open(&mut self, path: &Path) -> Result<BTreeMap<String, RawTensor>, WeightsError> {
        let mapping = Mapping::open(path)?;
        let tensors = header::parse(&mapping)
            .map_err(|source| WeightsError::Safetensors { path: path.to_owned(), source })?;
        self.mappings.push(mapping);
        Ok(tensors)
    }
}

/// The folder's files with this extension, sorted.
pub(crate) fn files_with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, WeightsError> {
    let unreadable = |source| WeightsError::Unreadable { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, WeightsError> {
    let mapping = Mapping::open(path)?;
    let bytes = mapping.bytes().len() as u64;
    if bytes > MAX_JSON_BYTES {
        return Err(WeightsError::JsonTooLarge { path: path.to_owned(), bytes, limit: MAX_JSON_BYTES });
    }
    serde_json::from_slice(mapping.bytes())
        .map_err(|source| WeightsError::Json { path: path.to_owned(), source })
}
