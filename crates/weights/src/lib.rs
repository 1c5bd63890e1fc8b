//! Checkpoint readers: GGUF files, Hugging Face folders and MLX-quantised folders, all behind one [`Checkpoint`].
//!
//! ```text
//! path ─ Checkpoint::open ─┬─ gguf/         header, metadata, tensor table of a .gguf file
//!                          └─ huggingface/  config.json, *.safetensors headers, shard index, MLX triples
//!                                 │
//!                              Tensor ── read_f32 / read_affine, one row at a time
//!                                 │
//!                   packed/ (block formats)   floats (f32, f16, bf16)   mapping (mmap)
//! ```
//!
//! It relies on the operating system to page the files in and out: nothing but names, shapes and offsets is copied
//! at open. Everything a file claims is checked at open, so a [`Tensor`] that exists can be read to its last row.
//!
//! It must never panic, allocate by an unchecked size or read outside a file, whatever the file says. The one thing it
//! can't defend against is another process truncating or rewriting a file while it is mapped.

mod checkpoint;
pub mod digest;
mod error;
mod floats;
mod form;
pub mod gguf;
mod huggingface;
mod mapping;
mod packed;
mod tensor;

pub use checkpoint::{Checkpoint, Config};
pub use error::WeightsError;
pub use form::{AffineForm, AffineRow, Bits, FloatType, Form, Group, Zero};
pub use gguf::GgufError;
pub use huggingface::{IndexError, MlxError, SafetensorsError};
pub use tensor::Tensor;
