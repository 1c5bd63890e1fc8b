//! `MPNet`: positions after the padding token's, no token types, and a bias on the scores by distance.

use super::{EPSILON, positions_after_padding};
use crate::families::{Family, fields::Fields, fields::Key, keys};
use crate::{
    SpecError,
    encoder::{DistanceBuckets, EncoderSpec},
    spec::RopeLayout,
};

const BUCKETS: Key = Key::hugging_face("relative_attention_num_buckets");

pub(super) static FAMILY: Family<EncoderSpec> = Family {
    name: "mpnet",
    model_types: &["mpnet"],
    architectures: &[],
    gguf_layout: RopeLayout::Half,
    defaults: &[
        (EPSILON, 1e-12),
        (keys::MAX_POSITIONS, 512.0),
        (BUCKETS, 32.0),
        (Key::hugging_face("pad_token_id"), 1.0),
    ],
    gguf_defaults: &[],
    refine,
};

fn refine(fields: &Fields<'_>, spec: &mut EncoderSpec) -> Result<(), SpecError> {
    // Transformers computes 32 buckets up to a distance of 128, whatever the configuration says.
    if fields.count(BUCKETS, 1..=1024)? != 32 {
        return Err(fields.bad(BUCKETS, "32"));
    }
    spec.token_types = 0;
    spec.distances = Some(DistanceBuckets { buckets: 32, farthest: 128 });
    positions_after_padding(fields, spec)
}
