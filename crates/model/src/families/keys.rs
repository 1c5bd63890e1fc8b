//! The quantities that several families read, under both of their names, and the bounds they are held to.
//!
//! Bounds are several times what any published model has, and small enough that no product of two of them overflows
//! and no table sized by one of them hurts.

use std::ops::RangeInclusive;

use super::fields::Key;

/// Widths (hidden, intermediate) and the vocabulary: the largest today are 53,248 and 262,208.
pub(super) const WIDTH: RangeInclusive<usize> = 1..=1 << 20;
/// Layers: the largest today is 126.
pub(super) const LAYERS: RangeInclusive<usize> = 1..=1024;
/// Heads: the largest today is 128.
pub(super) const HEADS: RangeInclusive<usize> = 1..=1024;
/// Values per head: the largest today is 256; below 4 a rotary embedding has nothing to interpolate.
pub(super) const HEAD_DIM: RangeInclusive<usize> = 4..=1024;
/// Experts: the largest today is 512.
pub(super) const EXPERTS: RangeInclusive<usize> = 1..=4096;
/// Positions: the largest today is 10 million.
pub(super) const CONTEXT: RangeInclusive<usize> = 2..=crate::context::MAX_CONTEXT;
/// The rotary base: the largest today is 25 million.
pub(super) const THETA: RangeInclusive<f64> = 1.5..=1e12;
/// Divisors that stretch a rotary embedding.
pub(super) const STRETCH: RangeInclusive<f64> = 1.0..=1024.0;
/// Factors on cosine and sine, softcaps, and single frequencies' divisors.
pub(super) const POSITIVE: RangeInclusive<f64> = 1e-6..=1e6;
/// The norms' epsilon.
pub(super) const EPSILON: RangeInclusive<f64> = 0.0..=0.1;

pub(super) const VOCAB: Key = Key::new("vocab_size", "vocab_size");
pub(super) const HIDDEN: Key = Key::new("hidden_size", "embedding_length");
pub(super) const LAYER_COUNT: Key = Key::new("num_hidden_layers", "block_count");
pub(super) const HEAD_COUNT: Key = Key::new("num_attention_heads", "attention.head_count");
pub(super) const KV_HEAD_COUNT: Key = Key::new("num_key_value_heads", "attention.head_count_kv");
pub(super) const KEY_LENGTH: Key = Key::new("head_dim", "attention.key_length");
pub(super) const VALUE_LENGTH: Key = Key::gguf("attention.value_length");
pub(super) const INTERMEDIATE: Key = Key::new("intermediate_size", "feed_forward_length");
pub(super) const MAX_POSITIONS: Key = Key::new("max_position_embeddings", "context_length");
pub(super) const NORM_EPSILON: Key = Key::new("rms_norm_eps", "attention.layer_norm_rms_epsilon");
pub(super) const TIED: Key = Key::hugging_face("tie_word_embeddings");
pub(super) const ATTENTION_BIAS: Key = Key::hugging_face("attention_bias");
pub(super) const MLP_BIAS: Key = Key::hugging_face("mlp_bias");
pub(super) const ATTENTION_SCALE: Key = Key::gguf("attention.scale");
pub(super) const QUERY_SCALAR: Key = Key::hugging_face("query_pre_attn_scalar");
pub(super) const ATTENTION_SOFTCAP: Key = Key::new("attn_logit_softcapping", "attn_logit_softcapping");
pub(super) const LOGIT_SOFTCAP: Key = Key::new("final_logit_softcapping", "final_logit_softcapping");

pub(super) const ROPE_THETA: Key = Key::new("rope_theta", "rope.freq_base");
pub(super) const ROPE_DIMS: Key = Key::gguf("rope.dimension_count");
pub(super) const PARTIAL_ROTARY: Key = Key::hugging_face("partial_rotary_factor");

pub(super) const WINDOW: Key = Key::new("sliding_window", "attention.sliding_window");
pub(super) const USE_WINDOW: Key = Key::hugging_face("use_sliding_window");
pub(super) const FIRST_WINDOW_LAYER: Key = Key::hugging_face("max_window_layers");

pub(super) const EXPERT_COUNT: Key = Key::new("num_experts", "expert_count");
pub(super) const LOCAL_EXPERT_COUNT: Key = Key::new("num_local_experts", "expert_count");
pub(super) const EXPERTS_USED: Key = Key::new("num_experts_per_tok", "expert_used_count");
pub(super) const EXPERT_WIDTH: Key = Key::new("moe_intermediate_size", "expert_feed_forward_length");
pub(super) const EXPERTS_NORMALISED: Key = Key::new("norm_topk_prob", "expert_weights_norm");
