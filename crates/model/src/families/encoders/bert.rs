//! BERT and what keeps its design: `MiniLM`, BGE, E5, GTE, Arctic. GGUF calls XLM-RoBERTa so too.

use super::{EPSILON, TOKEN_TYPES};
use crate::families::{Family, keys};
use crate::{encoder::EncoderSpec, spec::RopeLayout};

pub(super) static FAMILY: Family<EncoderSpec> = Family {
    name: "bert",
    model_types: &["bert"],
    architectures: &["bert"],
    gguf_layout: RopeLayout::Half,
    defaults: &[(EPSILON, 1e-12), (keys::MAX_POSITIONS, 512.0), (TOKEN_TYPES, 2.0)],
    gguf_defaults: &[(EPSILON, 1e-12)],
    refine: |_, _| Ok(()),
};
