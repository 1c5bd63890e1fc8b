//! Mistral: the llama design with a sliding window on every layer. Its GGUF files call themselves llama.

use super::{Family, keys, windows};
use crate::spec::RopeLayout;

pub(super) static FAMILY: Family = Family {
    name: "mistral",
    model_types: &["mistral"],
    architectures: &[],
    gguf_layout: RopeLayout::Interleaved,
    defaults: &[
        (keys::ROPE_THETA, 10_000.0),
        (keys::MAX_POSITIONS, 131_072.0),
        (keys::NORM_EPSILON, 1e-6),
        (keys::KV_HEAD_COUNT, 8.0),
        (keys::WINDOW, 4096.0),
    ],
    gguf_defaults: &[],
    refine: |fields, spec| windows::apply(fields, spec, |_| true),
};
