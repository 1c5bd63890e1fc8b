//! Phi-3, Phi-3.5-mini and Phi-4-mini: the llama design with fused projections, a window, and divisors for long windows.

use super::{Family, keys, windows};
use crate::spec::RopeLayout;

pub(super) static FAMILY: Family = Family {
    name: "phi3",
    model_types: &["phi3"],
    architectures: &["phi3"],
    gguf_layout: RopeLayout::Half,
    defaults: &[(keys::ROPE_THETA, 10_000.0), (keys::MAX_POSITIONS, 4096.0), (keys::NORM_EPSILON, 1e-5)],
    gguf_defaults: &[],
    refine: |fields, spec| windows::apply(fields, spec, |_| true),
};
