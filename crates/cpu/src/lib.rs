//! The executor on CPU kernels: paged KV storage, forward pass, sampling.
//!
//! # Layout
//! - [`executor`]: the executor itself.
//! - [`sampling`]: from a row of logits to a token.

pub mod executor;
pub mod sampling;

pub use executor::{CpuExecutor, CpuOptions};
