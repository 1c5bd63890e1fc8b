//! What is wanted of a model of texts that runs elsewhere than on this CPU's threads.

use super::{Pooling, Texts};

/// An encoder, or a decoder that stands in for one, on a device of its own. No text's result depends on another one.
pub trait DeviceEncoder: Send {
    /// What it is.
    fn facts(&self) -> DeviceFacts;

    /// What a text of so many tokens takes of a pass's [`tokens`](DeviceFacts::pass_tokens).
    fn room(&self, tokens: usize) -> usize;

    /// Runs one pass, for whatever is asked.
    fn encode(&mut self, texts: &Texts<'_>, asked: Asked) -> Result<Encoded, DeviceFailure>;
}

/// What there is to know about a model on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// The family's name, for people.
    pub family: &'static str,
    /// Values of a vector.
    pub dimensions: usize,
    /// Tokens of the longest text.
    pub max_tokens: usize,
    /// Rows of the vocabulary.
    pub vocab: usize,
    /// Whether it can tell how relevant a text is to another.
    pub can_score: bool,
    /// The one way in which it pools, where it has only one.
    pub pooling: Option<Pooling>,
    /// Tokens of a pass.
    pub pass_tokens: usize,
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
