//! Which layers see only a sliding window.

use serde_json::Value;

use super::{fields::Fields, keys};
use crate::{SpecError, spec::DecoderSpec};

/// Gives the window to the layers that `layer_types` names or, where a file has no such list, that `slides` chooses.
pub(super) fn apply(
    fields: &Fields<'_>,
    spec: &mut DecoderSpec,
    slides: impl Fn(usize) -> bool,
) -> Result<(), SpecError> {
    // GGUF writes 0 for a model without a window.
    let window = fields.maybe_count(keys::WINDOW, 0..=*keys::CONTEXT.end())?.filter(|window| *window > 0);
    let listed = layer_types(fields, spec.layers.len())?;
    for (index, layer) in spec.layers.iter_mut().enumerate() {
        let sliding = listed.as_ref().map_or_else(|| slides(index), |listed| listed[index]);
        layer.window = window.filter(|_| sliding);
    }
    Ok(())
}

/// One entry per layer: whether it slides.
pub(super) fn layer_types(fields: &Fields<'_>, layers: usize) -> Result<Option<Vec<bool>>, SpecError> {
    const KEY: &str = "layer_types";
    let Some(list) = fields.object.list(KEY)? else { return Ok(None) };
    let slides = |kind: &Value| match kind.as_str() {
        Some("sliding_attention") => Some(true),
        Some("full_attention") => Some(false),
        _ => None,
    };
    let listed: Option<Vec<bool>> = list.iter().map(slides).collect();
    listed.filter(|listed| listed.len() == layers).map(Some).ok_or_else(|| {
        fields.object.bad(KEY, &format!("{layers} entries, each sliding_attention or full_attention"))
    })
}
