//! Attention: which kernels compute it, in which form, and trials of it by itself.
//!
//! - [`prompts`]: kernels of prompts; [`decodes`]: of decoded rows.
//! - [`trial`]: attention by itself, for tests and measurements.

pub mod decodes;
pub mod prompts;
pub mod trial;

pub use decodes::{DecodeForm, DecodeKernels, DecodeStrategy};
pub use prompts::{PromptForm, PromptKernel};
