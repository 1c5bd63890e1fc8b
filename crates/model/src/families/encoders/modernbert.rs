//! `ModernBERT`: norms before, a gated MLP, and two rotary embeddings: one for layers that see all, one for those that
//! see their neighbours only.

use super::EPSILON;
use crate::families::{Family, fields::Fields, fields::Key, keys, ropes, windows};
use crate::{
    SpecError,
    encoder::{EncoderLayer, EncoderSpec, NormPlace},
    spec::{RopeIndex, RopeLayout},
};

/// Neighbours on both sides together.
const LOCAL: Key = Key::hugging_face("local_attention");
const GLOBAL_EVERY: Key = Key::hugging_face("global_attn_every_n_layers");
const LOCAL_THETA: Key = Key::hugging_face("local_rope_theta");

pub(super) static FAMILY: Family<EncoderSpec> = Family {
    name: "modernbert",
    model_types: &["modernbert"],
    architectures: &[],
    gguf_layout: RopeLayout::Half,
    defaults: &[
        (EPSILON, 1e-5),
        (keys::MAX_POSITIONS, 8192.0),
        (keys::ROPE_THETA, 160_000.0),
        (LOCAL_THETA, 10_000.0),
        (LOCAL, 128.0),
        (GLOBAL_EVERY, 3.0),
    ],
    gguf_defaults: &[],
    refine,
};

fn refine(fields: &Fields<'_>, spec: &mut EncoderSpec) -> Result<(), SpecError> {
    let every = fields.count(GLOBAL_EVERY, keys::LAYERS)?;
    let reach = fields.count(LOCAL, 2..=*keys::CONTEXT.end())? / 2;
    let listed = windows::layer_types(fields, spec.layers.len())?;
    for (index, layer) in spec.layers.iter_mut().enumerate() {
        let local = listed.as_ref().map_or(!index.is_multiple_of(every), |listed| listed[index]);
        *layer = EncoderLayer { reach: local.then_some(reach), rope: Some(RopeIndex(usize::from(local))) };
    }
    let everywhere = ropes::main(fields, spec.head_dim)?;
    let mut nearby = everywhere.clone();
    let given = ropes::parameters(fields, "sliding_attention")?.number("rope_theta", keys::THETA)?;
    nearby.theta = given.map_or_else(|| fields.number(LOCAL_THETA, keys::THETA), Ok)?;
    spec.ropes = vec![everywhere, nearby];
    spec.norms = NormPlace::Before;
    spec.first_position = None;
    spec.token_types = 0;
    spec.gated = true;
    Ok(())
}
