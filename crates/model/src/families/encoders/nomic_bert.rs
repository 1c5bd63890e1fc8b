//! `NomicBERT`: BERT with a rotary embedding for positions and a gated MLP.

use super::{EPSILON, TOKEN_TYPES};
use crate::families::{Family, fields::Fields, fields::Key, keys, ropes};
use crate::{
    SpecError,
    encoder::EncoderSpec,
    spec::{Activation, RopeIndex, RopeLayout},
};

const EXPERTS_EVERY: Key = Key::hugging_face("moe_every_n_layers");

pub(super) static FAMILY: Family<EncoderSpec> = Family {
    name: "nomic-bert",
    model_types: &["nomic_bert"],
    architectures: &["nomic-bert"],
    gguf_layout: RopeLayout::Half,
    defaults: &[
        (EPSILON, 1e-12),
        (keys::MAX_POSITIONS, 2048.0),
        (TOKEN_TYPES, 2.0),
        (keys::ROPE_THETA, 1000.0),
        (EXPERTS_EVERY, 0.0),
    ],
    gguf_defaults: &[(EPSILON, 1e-12), (keys::ROPE_THETA, 1000.0)],
    refine,
};

fn refine(fields: &Fields<'_>, spec: &mut EncoderSpec) -> Result<(), SpecError> {
    if fields.maybe_count(EXPERTS_EVERY, 0..=*keys::LAYERS.end())?.is_some_and(|every| every > 0) {
        return Err(fields.bad(EXPERTS_EVERY, "0, a model without experts"));
    }
    spec.ropes = vec![ropes::main(fields, spec.head_dim)?];
    spec.layers.iter_mut().for_each(|layer| layer.rope = Some(RopeIndex(0)));
    spec.first_position = None;
    spec.gated = true;
    // Its first files say `swiglu` under a key of their own.
    spec.activation = Activation::Silu;
    Ok(())
}
