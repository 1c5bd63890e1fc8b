//! Where tokenizers come from: GGUF metadata, or a Hugging Face folder.
//!
//! Both give the same [`Parts`](crate::tokenizer::Parts); nothing behind this module knows which it was.

mod end_tokens;
mod gguf;
mod gguf_presets;
mod huggingface;
mod json_file;

pub(crate) use huggingface::{TokenizerConfig, token_field};
pub(crate) use json_file::{read_json, read_text};

use crate::error::TextError;
use crate::tokenizer::Tokenizer;
use ropeway_weights::{Checkpoint, Config, gguf::Metadata};
use std::path::Path;

impl Tokenizer {
    /// The tokenizer of a checkpoint: from its GGUF metadata, or from tokenizer.json beside its weights.
    pub fn from_checkpoint(checkpoint: &Checkpoint) -> Result<Self, TextError> {
        match checkpoint.config() {
            Config::Gguf(metadata) => Self::from_gguf(metadata),
            Config::HuggingFace(_) => Self::from_folder(checkpoint.folder()),
        }
    }

    /// The tokenizer that a GGUF file carries.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self, TextError> {
        gguf::parts(metadata).map(Self::from_parts)
    }

    /// The tokenizer of a folder with tokenizer.json and, where there, `tokenizer_config.json` and
    /// `generation_config.json`.
    pub fn from_folder(folder: &Path) -> Result<Self, TextError> {
        huggingface::parts(folder).map(Self::from_parts)
    }
}
