//! Mixtral: Mistral with experts in every layer. Its GGUF files call themselves llama.

use super::{
    Family,
    experts::{self, ExpertKeys},
    fields::Fields,
    keys, windows,
};
use crate::{
    SpecError,
    spec::{DecoderSpec, MlpSpec, RopeLayout},
};

pub(super) static FAMILY: Family = Family {
    name: "mixtral",
    model_types: &["mixtral"],
    architectures: &[],
    gguf_layout: RopeLayout::Interleaved,
    defaults: &[
        (keys::ROPE_THETA, 1_000_000.0),
        (keys::MAX_POSITIONS, 131_072.0),
        (keys::NORM_EPSILON, 1e-5),
        (keys::KV_HEAD_COUNT, 8.0),
        (keys::LOCAL_EXPERT_COUNT, 8.0),
        (keys::EXPERTS_USED, 2.0),
    ],
    gguf_defaults: &[],
    refine,
};

/// A window on every layer, and experts in every layer, where the file has them.
pub(super) fn refine(fields: &Fields<'_>, spec: &mut DecoderSpec) -> Result<(), SpecError> {
    windows::apply(fields, spec, |_| true)?;
    let keys = ExpertKeys { count: keys::LOCAL_EXPERT_COUNT, width: keys::INTERMEDIATE };
    if let Some(experts) = experts::read(fields, &keys)? {
        for layer in &mut spec.layers {
            layer.mlp = MlpSpec::Experts(experts);
        }
    }
    Ok(())
}
