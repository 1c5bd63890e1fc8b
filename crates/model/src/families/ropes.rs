//! Rotary embeddings as the two file forms describe them.
//!
//! `config.json` has had two styles: `rope_theta` beside a `rope_scaling` object, and a single `rope_parameters` object
//! that may hold one object per kind of layer. GGUF has `rope.*` keys, and tensors for divisors per frequency.

use super::{
    fields::{Fields, Form, Key, TensorFacts},
    keys::{self, POSITIVE, STRETCH, THETA},
    object::Object,
};
use crate::{
    SpecError,
    spec::{Llama3Scaling, LongRopeScaling, RopeLayout, RopeSpec, Scaling, YarnScaling},
};

/// The rotary embedding of layers that see the whole window.
pub(super) fn main(fields: &Fields<'_>, head_dim: usize) -> Result<RopeSpec, SpecError> {
    match fields.form {
        Form::HuggingFace => {
            let parameters = parameters(fields, "full_attention")?;
            let dims = partial_dims(fields, &parameters, head_dim)?;
            let theta = parameters.number("rope_theta", THETA)?;
            let theta = theta.map_or_else(|| fields.number(keys::ROPE_THETA, THETA), Ok)?;
            let scaling = hugging_face_scaling(fields, &parameters, dims)?;
            Ok(RopeSpec { dims, layout: RopeLayout::Half, theta, scaling })
        }
        Form::Gguf(tensors) => {
            let dims = fields.maybe_count(keys::ROPE_DIMS, 4..=head_dim)?.unwrap_or(head_dim);
            if !dims.is_multiple_of(2) {
                return Err(fields.bad(keys::ROPE_DIMS, "an even number"));
            }
            let theta = fields.maybe_number(keys::ROPE_THETA, THETA)?.unwrap_or(10_000.0);
            let scaling = gguf_scaling(fields, tensors, dims)?;
            Ok(RopeSpec { dims, layout: fields.family.gguf_layout, theta, scaling })
        }
    }
}

/// The window a checkpoint serves when it states `positions`: where its scaling starts from the original window, that
/// window stretched; otherwise `positions` says it already.
pub(super) fn served_context(positions: usize, scaling: &Scaling) -> usize {
    let stretched = match scaling {
        Scaling::Yarn(yarn) => yarn.original_context as f64 * yarn.factor,
        Scaling::Dynamic { factor, original_context } => *original_context as f64 * factor,
        _ => 0.0,
    };
    (stretched as usize).clamp(positions, (*keys::CONTEXT.end()).max(positions))
}

/// The object that describes the rotary embedding of one kind of layer.
pub(super) fn parameters<'a>(fields: &Fields<'a>, layer_kind: &str) -> Result<Object<'a>, SpecError> {
    let parameters = fields.object.child("rope_parameters")?;
    if parameters.get(layer_kind).is_some() {
        return parameters.child(layer_kind);
    }
    if fields.object.get("rope_parameters").is_some() {
        Ok(parameters)
    } else {
        fields.object.child("rope_scaling")
    }
}

fn partial_dims(fields: &Fields<'_>, parameters: &Object<'_>, head_dim: usize) -> Result<usize, SpecError> {
    let share = match parameters.number("partial_rotary_factor", 0.0..=1.0)? {
        Some(share) => share,
        None => fields.maybe_number(keys::PARTIAL_ROTARY, 0.0..=1.0)?.unwrap_or(1.0),
    };
    let dims = (head_dim as f64 * share) as usize;
    if dims.is_multiple_of(2) && (4..=head_dim).contains(&dims) {
        return Ok(dims);
    }
    Err(fields.bad(
        keys::PARTIAL_ROTARY,
        &format!("a share that turns an even number of the {head_dim} values of a head"),
    ))
}

fn hugging_face_scaling(
    fields: &Fields<'_>,
    parameters: &Object<'_>,
    dims: usize,
) -> Result<Scaling, SpecError> {
    let key = if parameters.get("rope_type").is_some() { "rope_type" } else { "type" };
    match parameters.text(key)?.unwrap_or("default") {
        "default" => Ok(Scaling::None),
        "linear" => Ok(Scaling::Linear { factor: required(parameters, "factor")? }),
        "llama3" => llama3(fields, parameters).map(Scaling::Llama3),
        "dynamic" => Ok(Scaling::Dynamic {
            factor: required(parameters, "factor")?,
            original_context: fields.count(keys::MAX_POSITIONS, keys::CONTEXT)?,
        }),
        "longrope" | "su" => longrope(fields, parameters, dims).map(Scaling::LongRope),
        // The first long phi files called their searched divisors "yarn".
        "yarn" if parameters.get("short_factor").is_some() => {
            longrope(fields, parameters, dims).map(Scaling::LongRope)
        }
        "yarn" => yarn(fields, parameters).map(Scaling::Yarn),
        _ => Err(parameters.bad(key, "default, linear, llama3, yarn, dynamic or longrope")),
    }
}

fn required(parameters: &Object<'_>, key: &str) -> Result<f64, SpecError> {
    parameters.number(key, STRETCH)?.ok_or_else(|| parameters.missing(key))
}

/// The window before stretching: with the scaling, beside it, or the only one stated.
fn original_context(fields: &Fields<'_>, parameters: &Object<'_>) -> Result<usize, SpecError> {
    const KEY: &str = "original_max_position_embeddings";
    if let Some(original) = parameters.count(KEY, keys::CONTEXT)? {
        return Ok(original);
    }
    match fields.object.count(KEY, keys::CONTEXT)? {
        Some(original) => Ok(original),
        None => fields.count(keys::MAX_POSITIONS, keys::CONTEXT),
    }
}

/// How many times longer the window became: stated, or the ratio of the two windows.
fn stretch(fields: &Fields<'_>, parameters: &Object<'_>, original: usize) -> Result<f64, SpecError> {
    if let Some(factor) = parameters.number("factor", STRETCH)? {
        return Ok(factor);
    }
    let positions = fields.count(keys::MAX_POSITIONS, keys::CONTEXT)?;
    Ok((positions as f64 / original as f64).max(1.0))
}

fn llama3(fields: &Fields<'_>, parameters: &Object<'_>) -> Result<Llama3Scaling, SpecError> {
    let low = required(parameters, "low_freq_factor")?;
    let high = required(parameters, "high_freq_factor")?;
    if high <= low {
        return Err(parameters.bad("high_freq_factor", &format!("more than low_freq_factor, {low}")));
    }
    Ok(Llama3Scaling {
        factor: required(parameters, "factor")?,
        low_freq_factor: low,
        high_freq_factor: high,
        original_context: original_context(fields, parameters)?,
    })
}

fn yarn(fields: &Fields<'_>, parameters: &Object<'_>) -> Result<YarnScaling, SpecError> {
    let original_context = original_context(fields, parameters)?;
    let paper = YarnScaling::paper(stretch(fields, parameters, original_context)?, original_context);
    Ok(YarnScaling {
        beta_fast: parameters.number("beta_fast", POSITIVE)?.unwrap_or(paper.beta_fast),
        beta_slow: parameters.number("beta_slow", POSITIVE)?.unwrap_or(paper.beta_slow),
        truncate: parameters.flag("truncate")?.unwrap_or(paper.truncate),
        attention_factor: yarn_attention_factor(parameters, paper.factor)?,
        ..paper
    })
}

/// Stated, or the ratio of two stated weights, or the paper's.
fn yarn_attention_factor(parameters: &Object<'_>, factor: f64) -> Result<f64, SpecError> {
    if let Some(given) = parameters.number("attention_factor", POSITIVE)? {
        return Ok(given);
    }
    let weight =
        |key: &str| parameters.number(key, 0.0..=1e6).map(|weight| weight.filter(|weight| *weight > 0.0));
    match (weight("mscale")?, weight("mscale_all_dim")?) {
        (Some(own), Some(all)) => {
            Ok(YarnScaling::weighted_attention(factor, own) / YarnScaling::weighted_attention(factor, all))
        }
        _ => Ok(YarnScaling::weighted_attention(factor, 1.0)),
    }
}

fn longrope(fields: &Fields<'_>, parameters: &Object<'_>, dims: usize) -> Result<LongRopeScaling, SpecError> {
    let divisors =
        |key: &str| parameters.numbers(key, dims / 2, &POSITIVE)?.ok_or_else(|| parameters.missing(key));
    let original_context = original_context(fields, parameters)?;
    let factor = stretch(fields, parameters, original_context)?;
    let given = parameters.number("attention_factor", POSITIVE)?;
    Ok(LongRopeScaling {
        short: divisors("short_factor")?,
        long: divisors("long_factor")?,
        original_context,
        attention_factor: given
            .unwrap_or_else(|| (1.0 + factor.ln() / (original_context as f64).ln()).sqrt()),
    })
}

fn gguf_scaling(fields: &Fields<'_>, tensors: &dyn TensorFacts, dims: usize) -> Result<Scaling, SpecError> {
    const ORIGINAL: Key = Key::gguf("rope.scaling.original_context_length");
    const ATTENTION: Key = Key::gguf("rope.scaling.attn_factor");
    let original_context = match fields.maybe_count(ORIGINAL, keys::CONTEXT)? {
        Some(original) => original,
        None => fields.count(keys::MAX_POSITIONS, keys::CONTEXT)?,
    };
    let attention_factor = fields.maybe_number(ATTENTION, POSITIVE)?.unwrap_or(1.0);
    if let Some(long) = gguf_divisors(tensors, "rope_factors_long.weight", dims)? {
        let short = gguf_divisors(tensors, "rope_factors_short.weight", dims)?;
        let short =
            short.ok_or_else(|| SpecError::Missing { key: "rope_factors_short.weight".to_owned() })?;
        return Ok(Scaling::LongRope(LongRopeScaling { short, long, original_context, attention_factor }));
    }
    if let Some(divisors) = gguf_divisors(tensors, "rope_freqs.weight", dims)? {
        return Ok(Scaling::Factors(divisors));
    }
    let factor = gguf_factor(fields)?;
    match fields.object.text("rope.scaling.type")?.unwrap_or("linear") {
        "yarn" => gguf_yarn(fields, factor, original_context, attention_factor),
        "linear" if factor > 1.0 => Ok(Scaling::Linear { factor }),
        "none" | "linear" | "longrope" => Ok(Scaling::None),
        _ => Err(fields.object.bad("rope.scaling.type", "none, linear, yarn or longrope")),
    }
}

/// The stretch under its new or old name; files write 0 for none.
fn gguf_factor(fields: &Fields<'_>) -> Result<f64, SpecError> {
    for key in ["rope.scaling.factor", "rope.scale_linear"] {
        match fields.object.number(key, 0.0..=*STRETCH.end())? {
            Some(factor) if STRETCH.contains(&factor) => return Ok(factor),
            Some(factor) if factor > 0.0 => {
                return Err(fields.object.bad(key, "0 or a number from 1 to 1024"));
            }
            _ => {}
        }
    }
    Ok(1.0)
}

fn gguf_yarn(
    fields: &Fields<'_>,
    factor: f64,
    original_context: usize,
    attention_factor: f64,
) -> Result<Scaling, SpecError> {
    let paper = YarnScaling::paper(factor, original_context);
    let beta = |key: &str| fields.object.number(key, POSITIVE);
    Ok(Scaling::Yarn(YarnScaling {
        beta_fast: beta("rope.scaling.yarn_beta_fast")?.unwrap_or(paper.beta_fast),
        beta_slow: beta("rope.scaling.yarn_beta_slow")?.unwrap_or(paper.beta_slow),
        attention_factor: paper.attention_factor * attention_factor,
        ..paper
    }))
}

fn gguf_divisors(tensors: &dyn TensorFacts, name: &str, dims: usize) -> Result<Option<Vec<f32>>, SpecError> {
    if tensors.rows(name).is_none() {
        return Ok(None);
    }
    let usable = |divisors: &Vec<f32>| divisors.iter().all(|divisor| POSITIVE.contains(&f64::from(*divisor)));
    tensors.vector(name, dims / 2).filter(usable).map(Some).ok_or_else(|| SpecError::Bad {
        key: name.to_owned(),
        value: "a tensor of another shape or with other values".to_owned(),
        allowed: format!("{} numbers from {} to {}", dims / 2, POSITIVE.start(), POSITIVE.end()),
    })
}
