//! What a model is: the specifications, the families as data, and the two forward passes, of decoders and of encoders.
//!
//! # Layout
//! - [`spec`]: what a decoder is, as plain data.
//! - [`families`]: from a checkpoint's description of itself to a [`DecoderSpec`]; one small file per family.
//! - [`context`]: windows other than the trained one.
//! - [`names`]: what a tensor is called in a file.
//! - [`rope`]: rotary embeddings, from the specification to angles.
//! - [`tensors`]: a decoder's tensors by what they do; [`load`]: from these to packed weights.
//! - `layer`: the weights in memory; [`step`]: the input of a step.
//! - [`decoder`]: the one decoder forward pass; [`kv`] and [`workspace`]: the memory it runs in.
//! - [`encoder`]: what an encoder is, and its one forward pass.

pub mod context;
pub mod decoder;
pub mod encoder;
pub mod error;
mod experts;
pub mod families;
pub mod kv;
mod layer;
pub mod load;
pub mod names;
pub mod rope;
pub mod spec;
mod stack;
pub mod step;
pub mod tensors;
pub mod workspace;

pub use context::{RopeScalingChoice, ScalingMethod};
pub use decoder::Decoder;
pub use error::SpecError;
pub use kv::KvCache;
pub use load::{LoadError, LoadOptions, Precision, Quantize, load};
pub use names::{ExpertPart, Part, Role, TensorNames};
pub use rope::RopeTable;
pub use spec::DecoderSpec;
pub use stack::GroupFactors;
pub use step::{Step, StepArrays};
pub use tensors::DecoderTensors;
pub use workspace::{StepLimits, Workspace};
