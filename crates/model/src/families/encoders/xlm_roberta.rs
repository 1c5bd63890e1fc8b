//! `RoBERTa` and XLM-RoBERTa (multilingual E5, BGE-M3): BERT whose positions start after the padding token's.

use super::{EPSILON, TOKEN_TYPES, positions_after_padding};
use crate::families::{Family, fields::Key, keys};
use crate::{encoder::EncoderSpec, spec::RopeLayout};

pub(super) static FAMILY: Family<EncoderSpec> = Family {
    name: "xlm-roberta",
    model_types: &["xlm-roberta", "roberta", "camembert"],
    architectures: &[],
    gguf_layout: RopeLayout::Half,
    defaults: &[
        (EPSILON, 1e-12),
        (keys::MAX_POSITIONS, 512.0),
        (TOKEN_TYPES, 2.0),
        (Key::hugging_face("pad_token_id"), 1.0),
    ],
    gguf_defaults: &[],
    refine: positions_after_padding,
};
