//! What is wanted of an encoder that runs elsewhere than on this CPU's threads.

use super::{EncoderSpec, Pooling, Texts};

/// An encoder on a device of its own. No text's result depends on another one.
pub trait DeviceEncoder: Send {
    /// What it is.
    fn spec(&self) -> &EncoderSpec;

    /// Whether it can tell how relevant a text is to another.
    fn can_score(&self) -> bool;

    /// Tokens of a pass.
    fn tokens(&self) -> usize;

    /// Runs one pass of at most [`tokens`](Self::tokens) tokens, for whatever is asked.
    fn encode(&mut self, texts: &Texts<'_>, asked: Asked) -> Result<Encoded, DeviceFailure>;
}

/// What a pass is to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// A vector per text, pooled like this.
    pub vectors: Option<Pooling>,
    /// A raw score per text.
    pub scores: bool,
}

/// What a pass gave; empty where it was not asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Encoded {
    /// Per text.
    pub vectors: Vec<Vec<f32>>,
    /// Per text.
    pub scores: Vec<f32>,
}

/// Why a device computed nothing, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFailure(pub String);
