//! Gemma 2: scaled embeddings, norms on both sides of attention and MLP, capped scores, every other layer sliding.

use super::{Family, fields::Fields, keys, plain, windows};
use crate::{
    SpecError,
    spec::{Activation, DecoderSpec, RopeLayout},
};

pub(super) static FAMILY: Family = Family {
    name: "gemma2",
    model_types: &["gemma2"],
    architectures: &["gemma2"],
    gguf_layout: RopeLayout::Half,
    defaults: &[
        (keys::ROPE_THETA, 10_000.0),
        (keys::MAX_POSITIONS, 8192.0),
        (keys::NORM_EPSILON, 1e-6),
        (keys::KV_HEAD_COUNT, 4.0),
        (keys::KEY_LENGTH, 256.0),
        (keys::TIED, 1.0),
        (keys::QUERY_SCALAR, 256.0),
        (keys::WINDOW, 4096.0),
        (keys::ATTENTION_SOFTCAP, 50.0),
        (keys::LOGIT_SOFTCAP, 30.0),
    ],
    gguf_defaults: &[(keys::WINDOW, 4096.0), (keys::ATTENTION_SOFTCAP, 50.0), (keys::LOGIT_SOFTCAP, 30.0)],
    refine,
};

/// The 27B model, whose layers alone tell it apart in GGUF, scales by hidden size / heads.
const LARGEST_LAYERS: usize = 46;

fn refine(fields: &Fields<'_>, spec: &mut DecoderSpec) -> Result<(), SpecError> {
    shared_design(fields, spec, LARGEST_LAYERS)?;
    windows::apply(fields, spec, |layer| layer.is_multiple_of(2))
}

/// What Gemma 2 and 3 have in common. `largest_layers` is the layer count of the one size in each generation that
/// scales its scores by hidden size / heads instead of the head width, which GGUF files do not state.
pub(super) fn shared_design(
    fields: &Fields<'_>,
    spec: &mut DecoderSpec,
    largest_layers: usize,
) -> Result<(), SpecError> {
    // Hugging Face files store the norms' distance from one; GGUF converters add the one.
    spec.norm.offset = if fields.is_gguf() { 0.0 } else { 1.0 };
    spec.activation = plain::activation(fields, "hidden_activation")?.unwrap_or(Activation::GeluTanh);
    spec.embedding_scale = (spec.hidden as f32).sqrt();
    spec.post_norms = true;
    spec.attention.softcap =
        fields.maybe_number(keys::ATTENTION_SOFTCAP, keys::POSITIVE)?.map(|cap| cap as f32);
    spec.logit_softcap = fields.maybe_number(keys::LOGIT_SOFTCAP, keys::POSITIVE)?.map(|cap| cap as f32);
    if fields.is_gguf() {
        if spec.layers.len() == largest_layers {
            spec.attention.scale = ((spec.heads as f64 / spec.hidden as f64).sqrt()) as f32;
        }
    } else {
        spec.attention.scale = (1.0 / fields.number(keys::QUERY_SCALAR, keys::POSITIVE)?.sqrt()) as f32;
    }
    Ok(())
}
