//! Qwen3 with experts, in all layers but those a file lists as dense.

use serde_json::Value;

use super::{
    Family,
    experts::{self, ExpertKeys},
    fields::{Fields, Key},
    keys, windows,
};
use crate::{
    SpecError,
    spec::{DecoderSpec, ExpertsSpec, MlpSpec, QkNorm, RopeLayout},
};

pub(super) static FAMILY: Family = Family {
    name: "qwen3_moe",
    model_types: &["qwen3_moe"],
    architectures: &["qwen3moe"],
    gguf_layout: RopeLayout::Half,
    defaults: &[
        (keys::ROPE_THETA, 10_000.0),
        (keys::MAX_POSITIONS, 32_768.0),
        (keys::NORM_EPSILON, 1e-6),
        (keys::KV_HEAD_COUNT, 4.0),
        (keys::WINDOW, 4096.0),
        (keys::EXPERT_COUNT, 128.0),
        (keys::EXPERTS_USED, 8.0),
        (keys::EXPERT_WIDTH, 768.0),
        (SPARSE_STEP, 1.0),
    ],
    // GGUF files of this architecture never state it, and all have it.
    gguf_defaults: &[(keys::EXPERTS_NORMALISED, 1.0), (SPARSE_STEP, 1.0)],
    refine,
};

/// Every how many layers the MLP is a mixture.
const SPARSE_STEP: Key = Key::hugging_face("decoder_sparse_step");

fn refine(fields: &Fields<'_>, spec: &mut DecoderSpec) -> Result<(), SpecError> {
    spec.attention.qk_norm = Some(QkNorm::PerHead);
    if fields.flag(keys::USE_WINDOW)? {
        windows::apply(fields, spec, |_| true)?;
    }
    // transformers 5 writes the spelling that mixtral has always had.
    let newer = fields.maybe_count(keys::LOCAL_EXPERT_COUNT, 0..=*keys::EXPERTS.end())?.is_some();
    let count = if newer { keys::LOCAL_EXPERT_COUNT } else { keys::EXPERT_COUNT };
    let keys = ExpertKeys { count, width: keys::EXPERT_WIDTH };
    let Some(experts) = experts::read(fields, &keys)? else { return Ok(()) };
    let normalise = fields.flag(keys::EXPERTS_NORMALISED)?;
    place(fields, spec, ExpertsSpec { normalise, ..experts })
}

fn place(fields: &Fields<'_>, spec: &mut DecoderSpec, experts: ExpertsSpec) -> Result<(), SpecError> {
    let step = fields.count(SPARSE_STEP, 1..=*keys::LAYERS.end())?;
    let dense = fields.object.list("mlp_only_layers")?.unwrap_or_default();
    for (index, layer) in spec.layers.iter_mut().enumerate() {
        let listed_dense = dense.iter().any(|entry| Value::as_u64(entry) == Some(index as u64));
        if !listed_dense && (index + 1).is_multiple_of(step) {
            layer.mlp = MlpSpec::Experts(experts);
        }
    }
    Ok(())
}
