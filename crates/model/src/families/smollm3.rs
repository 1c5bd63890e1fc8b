//! `SmolLM3`: the llama design in which every fourth layer leaves queries and keys unrotated.

use serde_json::Value;

use super::{
    Family,
    fields::{Fields, Key},
    keys, windows,
};
use crate::{
    SpecError,
    spec::{DecoderSpec, RopeLayout},
};

pub(super) static FAMILY: Family = Family {
    name: "smollm3",
    model_types: &["smollm3"],
    architectures: &["smollm3"],
    gguf_layout: RopeLayout::Interleaved,
    defaults: &[
        (keys::ROPE_THETA, 2_000_000.0),
        (keys::MAX_POSITIONS, 32_768.0),
        (keys::NORM_EPSILON, 1e-6),
        (keys::KV_HEAD_COUNT, 4.0),
        (keys::TIED, 1.0),
        (PLAIN_INTERVAL, 4.0),
    ],
    gguf_defaults: &[(PLAIN_INTERVAL, 4.0)],
    refine,
};

/// Every how many layers one goes without a rotary embedding.
const PLAIN_INTERVAL: Key = Key::hugging_face("no_rope_layer_interval");

fn refine(fields: &Fields<'_>, spec: &mut DecoderSpec) -> Result<(), SpecError> {
    let turns = turning_layers(fields, spec.layers.len())?;
    for (layer, _) in spec.layers.iter_mut().zip(&turns).filter(|(_, turns)| !**turns) {
        layer.rope = None;
    }
    if fields.flag(keys::USE_WINDOW)? {
        windows::apply(fields, spec, |layer| !turns[layer])?;
    }
    Ok(())
}

/// Per layer, whether it has a rotary embedding. The list in `config.json` says 1 where it has one, despite its name.
fn turning_layers(fields: &Fields<'_>, layers: usize) -> Result<Vec<bool>, SpecError> {
    const KEY: &str = "no_rope_layers";
    let Some(list) = fields.object.list(KEY)? else {
        let interval = fields.count(PLAIN_INTERVAL, 1..=*keys::LAYERS.end())?;
        return Ok((1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect());
    };
    let turns: Option<Vec<bool>> =
        list.iter().map(|entry| Value::as_u64(entry).map(|entry| entry != 0)).collect();
    let allowed = || fields.object.bad(KEY, &format!("{layers} entries of 0 or 1"));
    turns.filter(|turns| turns.len() == layers).ok_or_else(allowed)
}
