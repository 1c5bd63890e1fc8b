//! What can be wrong with a checkpoint, in words that say what to do next.
//!
//! [`WeightsError`] is about paths and tensors; the errors it wraps live beside their format and know the place in the
//! file.

use crate::{GgufError, IndexError, MlxError, SafetensorsError};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a checkpoint can't be opened, or a tensor not be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The operating system refused.
    #[error("can't read {path}: {source}; check that it exists and that you may read it", path = path.display())]
    Unreadable {
        /// What was to be read.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A folder, pipe or device where a file was expected.
    #[error("{path} is not a regular file; give the path of a model file", path = path.display())]
    NotAFile {
        /// What was given.
        path: PathBuf,
    },
    /// A file that is neither GGUF nor anything else known.
    #[error(
        "{path} is not a GGUF file; give a .gguf file, or the folder that holds config.json and *.safetensors",
        path = path.display()
    )]
    UnknownFile {
        /// What was given.
        path: PathBuf,
    },
    /// A folder without a model.
    #[error(
        "{path} holds neither a .gguf file nor config.json with *.safetensors; give the folder the model was \
         downloaded into",
        path = path.display()
    )]
    NoModel {
        /// The folder.
        path: PathBuf,
    },
    /// A folder with several GGUF files.
    #[error("{path} holds {count} .gguf files; give the path of the one to load", path = path.display())]
    SeveralModels {
        /// The folder.
        path: PathBuf,
        /// How many there are.
        count: usize,
    },
    /// A JSON file that is longer than any real one.
    #[error(
        "{path} has {bytes} bytes, more than the {limit} such a file may have; download the model again",
        path = path.display()
    )]
    JsonTooLarge {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A JSON file that does not parse.
    #[error("{path} is not valid JSON ({source}); download the model again", path = path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// `config.json` is valid JSON but not an object.
    #[error("{path} is not a JSON object; download the model again", path = path.display())]
    ConfigNotAnObject {
        /// The file.
        path: PathBuf,
    },
    /// The GGUF file is broken or of an unknown kind.
    #[error("{path}: {source}", path = path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: GgufError,
    },
    /// A safetensors file is broken.
    #[error("{path}: {source}", path = path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: SafetensorsError,
    },
    /// The shard index is broken or does not fit the shards.
    #[error("{path}: {source}", path = path.display())]
    Index {
        /// The index file.
        path: PathBuf,
        /// What is wrong with it.
        source: IndexError,
    },
    /// An MLX-quantised tensor or its description is broken.
    #[error("{path}: {source}", path = path.display())]
    Mlx {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        source: MlxError,
    },
    /// A quantisation this reader does not know.
    #[error(
        "{path} is quantised with `{method}`, which Ropeway does not read; use the plain bf16 checkpoint, its GGUF or \
         its MLX version",
        path = path.display()
    )]
    UnsupportedQuantisation {
        /// The folder.
        path: PathBuf,
        /// The method its config names.
        method: String,
    },
    /// The checkpoint has no tensor of that name.
    #[error("{path} has no tensor `{name}`; the file is incomplete or of another model family", path = path.display())]
    MissingTensor {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor asked for.
        name: String,
    },
    /// The tensor exists but its numbers are of a type no weight has.
    #[error(
        "tensor `{name}` of {path} holds {dtype} numbers; weights must be F32, F16 or BF16 (or MLX-quantised)",
        path = path.display()
    )]
    UnsupportedType {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor asked for.
        name: String,
        /// Its type, as the file names it.
        dtype: String,
    },
}
