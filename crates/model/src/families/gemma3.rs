//! Gemma 3 (text): Gemma 2 with a norm on queries and keys instead of caps, five sliding layers to a full one, and a
//! rotary embedding of their own for the sliding layers.

use super::{
    Family,
    fields::{Fields, Key},
    gemma2, keys, ropes, windows,
};
use crate::{
    SpecError,
    spec::{DecoderSpec, QkNorm, RopeIndex, RopeLayout, RopeSpec, Scaling},
};

pub(super) static FAMILY: Family = Family {
    name: "gemma3",
    model_types: &["gemma3", "gemma3_text"],
    architectures: &["gemma3"],
    gguf_layout: RopeLayout::Half,
    defaults: &[
        (keys::VOCAB, 262_208.0),
        (keys::HIDDEN, 2304.0),
        (keys::INTERMEDIATE, 9216.0),
        (keys::LAYER_COUNT, 26.0),
        (keys::HEAD_COUNT, 8.0),
        (keys::KV_HEAD_COUNT, 4.0),
        (keys::KEY_LENGTH, 256.0),
        (keys::MAX_POSITIONS, 131_072.0),
        (keys::NORM_EPSILON, 1e-6),
        (keys::ROPE_THETA, 1_000_000.0),
        (keys::TIED, 1.0),
        (keys::QUERY_SCALAR, 256.0),
        (keys::WINDOW, 4096.0),
        (LOCAL_THETA, 10_000.0),
        (PERIOD, 6.0),
    ],
    gguf_defaults: &[(LOCAL_THETA, 10_000.0), (PERIOD, 6.0)],
    refine,
};

/// The rotary base of sliding layers.
const LOCAL_THETA: Key = Key::new("rope_local_base_freq", "rope.freq_base_swa");
/// Every how many layers one sees the whole window.
const PERIOD: Key = Key::hugging_face("sliding_window_pattern");
/// Whether tokens see what follows them: true only of the embedding models built on this family.
const BIDIRECTIONAL: Key = Key::hugging_face("use_bidirectional_attention");
/// The 27B model, whose layers alone tell it apart in GGUF, scales by hidden size / heads.
const LARGEST_LAYERS: usize = 62;
/// Where the sliding layers' rotary embedding stands among the model's.
const LOCAL: RopeIndex = RopeIndex(1);

fn refine(fields: &Fields<'_>, spec: &mut DecoderSpec) -> Result<(), SpecError> {
    if fields.flag(BIDIRECTIONAL)? {
        return Err(
            fields.bad(BIDIRECTIONAL, "false: this is an embedding model, not one that generates text")
        );
    }
    gemma2::shared_design(fields, spec, LARGEST_LAYERS)?;
    spec.attention.qk_norm = Some(QkNorm::PerHead);
    let period = fields.count(PERIOD, 1..=*keys::LAYERS.end())?;
    windows::apply(fields, spec, |layer| !(layer + 1).is_multiple_of(period))?;
    let theta = local_theta(fields)?;
    let local = RopeSpec { theta, scaling: Scaling::None, ..spec.ropes[0].clone() };
    spec.ropes.push(local);
    for layer in spec.layers.iter_mut().filter(|layer| layer.window.is_some()) {
        layer.rope = Some(LOCAL);
    }
    Ok(())
}

fn local_theta(fields: &Fields<'_>) -> Result<f64, SpecError> {
    if fields.object.child("rope_parameters")?.get("sliding_attention").is_some() {
        let parameters = ropes::parameters(fields, "sliding_attention")?;
        if let Some(theta) = parameters.number("rope_theta", keys::THETA)? {
            return Ok(theta);
        }
    }
    fields.number(LOCAL_THETA, keys::THETA)
}
