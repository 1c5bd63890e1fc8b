//! Qwen2 and Qwen2.5: biases on queries, keys and values; a window, when switched on, from some layer onwards.

use super::{Family, fields::Fields, keys, windows};
use crate::{
    SpecError,
    spec::{DecoderSpec, RopeLayout},
};

pub(super) static FAMILY: Family = Family {
    name: "qwen2",
    model_types: &["qwen2"],
    architectures: &["qwen2"],
    gguf_layout: RopeLayout::Half,
    defaults: &[
        (keys::ROPE_THETA, 10_000.0),
        (keys::MAX_POSITIONS, 32_768.0),
        (keys::NORM_EPSILON, 1e-6),
        (keys::WINDOW, 4096.0),
        (keys::FIRST_WINDOW_LAYER, 28.0),
    ],
    gguf_defaults: &[],
    refine,
};

fn refine(fields: &Fields<'_>, spec: &mut DecoderSpec) -> Result<(), SpecError> {
    spec.attention.qkv_bias = true;
    switched_window(fields, spec)
}

/// The window of the Qwen line: off unless `use_sliding_window`, and then from `max_window_layers` on.
pub(super) fn switched_window(fields: &Fields<'_>, spec: &mut DecoderSpec) -> Result<(), SpecError> {
    if !fields.flag(keys::USE_WINDOW)? {
        return Ok(());
    }
    let first = fields.count(keys::FIRST_WINDOW_LAYER, 0..=*keys::LAYERS.end())?;
    windows::apply(fields, spec, |layer| layer >= first)
}
