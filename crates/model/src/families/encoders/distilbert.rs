//! `DistilBERT`: BERT without token types.

use super::EPSILON;
use crate::families::{Family, keys};
use crate::{encoder::EncoderSpec, spec::RopeLayout};

pub(super) static FAMILY: Family<EncoderSpec> = Family {
    name: "distilbert",
    model_types: &["distilbert"],
    architectures: &[],
    gguf_layout: RopeLayout::Half,
    defaults: &[(EPSILON, 1e-12), (keys::MAX_POSITIONS, 512.0)],
    gguf_defaults: &[],
    refine: |_, spec| {
        spec.token_types = 0;
        Ok(())
    },
};
