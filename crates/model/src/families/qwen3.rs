//! Qwen3: heads wider than hidden size / heads, and a norm on every head's queries and keys.

use super::{Family, fields::Fields, keys, qwen2};
use crate::{
    SpecError,
    spec::{DecoderSpec, QkNorm, RopeLayout},
};

pub(super) static FAMILY: Family = Family {
    name: "qwen3",
    model_types: &["qwen3"],
    architectures: &["qwen3"],
    gguf_layout: RopeLayout::Half,
    defaults: &[
        (keys::ROPE_THETA, 10_000.0),
        (keys::MAX_POSITIONS, 32_768.0),
        (keys::NORM_EPSILON, 1e-6),
        (keys::KEY_LENGTH, 128.0),
        (keys::WINDOW, 4096.0),
        (keys::FIRST_WINDOW_LAYER, 28.0),
    ],
    gguf_defaults: &[],
    refine,
};

fn refine(fields: &Fields<'_>, spec: &mut DecoderSpec) -> Result<(), SpecError> {
    spec.attention.qk_norm = Some(QkNorm::PerHead);
    qwen2::switched_window(fields, spec)
}
