//! Texts to vectors, and pairs of texts to scores.
//!
//! ```text
//! caller   text -> prompt -> tokens -> cut to the model's length -> frame -> submit
//! worker   batch -> passes of ragged texts -> pool                  one vector per text, or one score per pair
//! caller   shorten -> normalise
//! ```
//! Nothing is padded: a text's vector has the same bits alone and in any company.
//!
//! # Layout
//! - [`recipe`]: what the model's own files say about pooling, length and prompts.
//! - [`reader`]: from texts to what the model reads; runs on the caller's thread.
//! - [`passes`]: the model itself, encoder or decoder; owned by the worker's thread.
//! - [`embedder`]: both, and the batcher between them.

pub mod embedder;
mod error;
pub mod passes;
pub mod reader;
pub mod recipe;

pub use embedder::{Embedder, EmbedderOptions, Embedding, PendingEmbedding, PendingScore, Score};
pub use error::EmbedError;
pub use reader::{EmbedOptions, Input, Purpose, TooLong};
pub use recipe::Recipe;
