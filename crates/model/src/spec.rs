//! What a decoder is, as plain data: everything the one forward pass needs to know about a model.
//!
//! A [`DecoderSpec`] is made from a checkpoint by [`families`](crate::families), which checks every number, and is then
//! read by the loader, the KV cache and the forward pass. It relies on the kernels' names for what they compute, and holds
//! no weights.
//!
//! It must never say *which* family a model is to anything but a human: the forward pass branches on what a layer has,
//! not on who made it. A family that needs something new adds a field here.
//!
//! ```text
//! x = embedding[token] * embedding_scale
//! for each layer:
//!     h = norm(x) -> q, k, v (+ bias) -> qk_norm -> rope -> attention(scale, softcap, window) -> output (+ bias)
//!     x = x + (post_norms ? norm(h) : h)
//!     h = norm(x) -> down(activation(gate(h)) * up(h)), or the same through the chosen experts
//!     x = x + (post_norms ? norm(h) : h)
//! logits = softcap(head(norm(x)))
//! ```

pub use ropeway_kernels::elementwise::{Activation, Norm};

/// Everything the decoder forward pass needs to know about a model.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// The family's name, for people: logs, `show`, error texts.
    pub family: &'static str,
    /// Rows of the embedding, and logits per token.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads per layer.
    pub heads: usize,
    /// Key/value heads per layer; divides `heads`.
    pub kv_heads: usize,
    /// Values per head; even. `heads * head_dim` need not equal `hidden`.
    pub head_dim: usize,
    /// The layers, first to last; at least one.
    pub layers: Vec<LayerSpec>,
    /// The longest window the checkpoint claims to serve, its own rope scaling included.
    pub max_context: usize,
    /// The window to serve: `max_context` until [`with_context`](DecoderSpec::with_context) says otherwise.
    pub context: usize,
    /// How every RMS norm of the model is computed.
    pub norm: Norm,
    /// The non-linearity between gate and up.
    pub activation: Activation,
    /// What embedding rows are multiplied by; 1 where a family does not scale.
    pub embedding_scale: f32,
    /// Whether the embedding doubles as the vocabulary head.
    pub tied_embeddings: bool,
    /// `cap * tanh(logit / cap)` on the final logits.
    pub logit_softcap: Option<f32>,
    /// What all attention layers share.
    pub attention: AttentionSpec,
    /// Whether gate, up and down have a bias.
    pub mlp_bias: bool,
    /// Whether attention and MLP outputs are normed before they are added to the residual stream.
    pub post_norms: bool,
    /// The rotary embeddings that layers refer to by [`RopeIndex`].
    pub ropes: Vec<RopeSpec>,
}

/// What the attention of every layer has in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// What `q . k` is multiplied by.
    pub scale: f32,
    /// `cap * tanh(score / cap)` on the scaled scores.
    pub softcap: Option<f32>,
    /// Whether the query, key and value projections have a bias.
    pub qkv_bias: bool,
    /// Whether the output projection has a bias.
    pub output_bias: bool,
    /// The RMS norm on queries and keys before the rotary embedding.
    pub qk_norm: Option<QkNorm>,
}

/// What one RMS norm on queries and keys spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// Each head by itself, one weight of `head_dim` values for all heads.
    PerHead,
    /// All heads of a token together, a weight as wide as the projection.
    WholeRow,
}

/// What differs from layer to layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// Sliding window: position `p` sees the `window` positions `p - window + 1 ..= p`. `None` sees all.
    pub window: Option<usize>,
    /// The rotary embedding of queries and keys; `None` leaves them as they are.
    pub rope: Option<RopeIndex>,
    /// What follows attention.
    pub mlp: MlpSpec,
}

/// An index into [`DecoderSpec::ropes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RopeIndex(pub usize);

/// The feed-forward part of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MlpSpec {
    /// One gated MLP for every token.
    Dense {
        /// Width between gate/up and down.
        intermediate: usize,
    },
    /// A router sends each token to a few of many gated MLPs.
    Experts(ExpertsSpec),
}

/// A mixture of experts: `p = softmax(router(h))`, the `top_k` largest are weighted by their `p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertsSpec {
    /// How many experts the layer holds.
    pub experts: usize,
    /// How many of them serve a token; at most `experts`.
    pub top_k: usize,
    /// Width inside one expert.
    pub intermediate: usize,
    /// Whether the chosen experts' weights are divided by their sum.
    pub normalise: bool,
}

/// One rotary embedding: which values of a head turn, and how fast.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// The first `dims` values of a head turn, the rest stay; even, at most `head_dim`.
    pub dims: usize,
    /// Which values form a pair.
    pub layout: RopeLayout,
    /// The base: pair `i` turns by `theta^(-2i / dims)` radians per position.
    pub theta: f64,
    /// How the turning is slowed for windows longer than trained.
    pub scaling: Scaling,
}

/// Which two values of a head turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeLayout {
    /// Value `i` with value `i + dims / 2`, as Hugging Face files are stored.
    Half,
    /// Value `2i` with value `2i + 1`, as GGUF stores the llama family.
    Interleaved,
}

/// How a rotary embedding is stretched; the formulas are in [`rope`](crate::rope).
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    /// As trained.
    None,
    /// Every frequency divided by `factor`.
    Linear {
        /// How many times longer the window became.
        factor: f64,
    },
    /// Low frequencies divided, high ones kept, a ramp between.
    Llama3(Llama3Scaling),
    /// As `Llama3` with a ramp over dimensions, plus a factor on cosine and sine.
    Yarn(YarnScaling),
    /// The base grows with the window; plain below `original_context`.
    Dynamic {
        /// How fast the base grows.
        factor: f64,
        /// The window the model was trained with.
        original_context: usize,
    },
    /// Searched divisors per frequency: one set for short, one for long windows.
    LongRope(LongRopeScaling),
    /// A divisor per frequency, computed by whoever wrote the file.
    Factors(Vec<f32>),
}

/// The parameters of [`Scaling::Llama3`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Scaling {
    /// Divisor of the low frequencies.
    pub factor: f64,
    /// Wavelengths above `original_context / low_freq_factor` are divided whole.
    pub low_freq_factor: f64,
    /// Wavelengths below `original_context / high_freq_factor` are kept.
    pub high_freq_factor: f64,
    /// The window before stretching.
    pub original_context: usize,
}

/// The parameters of [`Scaling::Yarn`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YarnScaling {
    /// Divisor of the low frequencies.
    pub factor: f64,
    /// The window before stretching.
    pub original_context: usize,
    /// Frequencies that turn more often than this over the original window are kept.
    pub beta_fast: f64,
    /// Frequencies that turn less often than this over the original window are divided whole.
    pub beta_slow: f64,
    /// What cosine and sine are multiplied by.
    pub attention_factor: f64,
    /// Whether the ramp's ends are rounded to whole dimensions.
    pub truncate: bool,
}

/// The parameters of [`Scaling::LongRope`].
#[derive(Clone, Debug, PartialEq)]
pub struct LongRopeScaling {
    /// Divisors for windows up to `original_context`; `dims / 2` of them.
    pub short: Vec<f32>,
    /// Divisors for longer windows; `dims / 2` of them.
    pub long: Vec<f32>,
    /// The window before stretching.
    pub original_context: usize,
    /// What cosine and sine are multiplied by.
    pub attention_factor: f64,
}

impl DecoderSpec {
    /// Values in one token's queries.
    pub fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Values in one token's keys, and in its values.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Positions back to which some layer looks, the token's own included; `None` where one sees all.
    pub fn reach(&self) -> Option<usize> {
        self.layers.iter().map(|layer| layer.window).reduce(|one, other| Some(one?.max(other?))).flatten()
    }
}
