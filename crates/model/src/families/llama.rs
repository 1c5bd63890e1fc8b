//! Llama 1 to 3, and everything built like it: `SmolLM2`, `TinyLlama`, Yi, and in GGUF also Mistral and Mixtral.

use super::{Family, fields::Fields, keys, mixtral};
use crate::{
    SpecError,
    spec::{DecoderSpec, RopeLayout},
};

pub(super) static FAMILY: Family = Family {
    name: "llama",
    model_types: &["llama"],
    architectures: &["llama"],
    gguf_layout: RopeLayout::Interleaved,
    defaults: &[(keys::ROPE_THETA, 10_000.0), (keys::MAX_POSITIONS, 2048.0), (keys::NORM_EPSILON, 1e-6)],
    gguf_defaults: &[],
    refine,
};

/// A GGUF file of this name may have a window or experts; a Hugging Face one may not.
fn refine(fields: &Fields<'_>, spec: &mut DecoderSpec) -> Result<(), SpecError> {
    if fields.is_gguf() { mixtral::refine(fields, spec) } else { Ok(()) }
}
