//! Why something cannot be embedded, told so that the reader knows what to change.

use std::path::PathBuf;

use ropeway_batcher::{Failed, Rejected};
use ropeway_model::{LoadError, SpecError};
use ropeway_text::TextError;

use crate::passes::NoValues;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// The model's files.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Its tokenizer, or a text it refuses.
    #[error(transparent)]
    Text(#[from] TextError),
    /// One of the files beside the weights.
    #[error("{} cannot be used: {why}; fetch the model again", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A step between tokens and vector that Ropeway does not have.
    #[error(
        "this model needs {what}, which Ropeway does not have; use another embedding model, such as all-minilm"
    )]
    Unsupported {
        /// The step.
        what: String,
    },
    /// A model that generates text.
    #[error(
        "this model does not say how its vectors are made: it is no embedding model; use one, such as all-minilm"
    )]
    NotAnEmbedder,
    /// A model without a head for pairs.
    #[error(
        "this model cannot score pairs of texts; use a cross-encoder, such as a bge-reranker or ms-marco-MiniLM"
    )]
    NotARanker,
    /// More tokens than the model can take.
    #[error("the text has {tokens} tokens, the model takes {limit}; shorten it or allow truncation")]
    TooLong {
        /// How many it has.
        tokens: usize,
        /// How many it may have.
        limit: usize,
    },
    /// Nothing to embed.
    #[error("the input is empty; give at least one token")]
    Empty,
    /// An id that is no token.
    #[error("token {token} is outside the model's vocabulary of {vocab}")]
    BadToken {
        /// The id.
        token: u32,
        /// How many there are.
        vocab: usize,
    },
    /// A length no vector of this model has.
    #[error("dimensions must be between 1 and {most}, not {asked}")]
    BadDimensions {
        /// What was asked for.
        asked: usize,
        /// The model's own.
        most: usize,
    },
    /// Too many wait, or the service is going.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// It was taken in, but has no result.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// NaN or infinity.
    #[error("the model produced no finite vector for this text; its weights are damaged")]
    NotFinite,
    /// The GPU.
    #[error("the device that computes this model failed: {0}; try again")]
    Device(String),
}

impl From<NoValues> for EmbedError {
    fn from(reason: NoValues) -> Self {
        match reason {
            NoValues::NotFinite => Self::NotFinite,
            NoValues::Device(reason) => Self::Device(reason),
        }
    }
}

impl From<SpecError> for EmbedError {
    fn from(error: SpecError) -> Self {
        Self::Load(error.into())
    }
}
