//! Attention: which kernels compute it, in which form, and trials of it by itself.
//!
//! - [`prompts`]: kernels of prompts; [`decodes`]: of decoded rows, and which form of these a loaded model uses.
//! - [`trial`]: attention by itself, for tests and measurements.

pub mod decodes;
pub mod prompts;
pub mod trial;

pub use decodes::{DecodeForm, DecodeKernels, DecodeStrategy, FormKernels};
pub use prompts::{PromptForm, PromptKernel};
