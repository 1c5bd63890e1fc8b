//! What a model is: the decoder specification, the families as data, and the one forward pass.
//!
//! # Layout
//! - [`spec`]: what a decoder is, as plain data.
//! - [`families`]: from a checkpoint's description of itself to a [`DecoderSpec`]; one small file per family.
//! - [`context`]: windows other than the trained one.
//! - [`names`]: what a tensor is called in a file.
//! - [`rope`]: rotary embeddings, from the specification to angles.

pub mod context;
pub mod error;
pub mod families;
pub mod names;
pub mod rope;
pub mod spec;

pub use context::{RopeScalingChoice, ScalingMethod};
pub use error::SpecError;
pub use names::{ExpertPart, Part, Role, TensorNames};
pub use rope::RopeTable;
pub use spec::DecoderSpec;
