//! What a model is: the decoder specification, the families as data, and the one forward pass.
//!
//! # Layout
//! - [`spec`]: what a decoder is, as plain data.

pub mod error;
pub mod spec;

pub use error::SpecError;
pub use spec::DecoderSpec;
