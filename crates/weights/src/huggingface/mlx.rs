//! MLX-quantised folders: which three tensors make one matrix, and how it is packed.
//!
//! `X.weight` (u32 words), `X.scales` and `X.biases` become one tensor `X.weight`. The width and the group come from
//! `quantization` in config.json: a default, and per-module overrides under the module's name.
//!
//! Relies on [`super::header`] for tensors whose data is there. Must never trust config.json over the shapes: where the two
//! disagree it is an error.

use super::header::{Dtype, RawTensor};
use crate::packed::mlx::{MlxGroup, MlxPacked};
use crate::tensor::Storage;
use crate::{Bits, FloatType, MlxError, Tensor};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

const WEIGHT: &str = ".weight";
const SCALES: &str = ".scales";
const BIASES: &str = ".biases";

/// What error texts call the default for all modules.
const ALL_MODULES: &str = "*";

/// How one matrix is packed, by config.json.
#[derive(Debug, Clone, Copy)]
struct Packing {
    bits: Bits,
    group: MlxGroup,
}

impl Packing {
    const fn bits(self) -> u32 {
        match self.bits {
            Bits::Four => 4,
            Bits::Eight => 8,
        }
    }
}

/// Takes every MLX triple out of `raw` and returns them as whole tensors.
pub(super) fn assemble(
    config: &Value,
    raw: &mut BTreeMap<String, RawTensor>,
) -> Result<Vec<Tensor>, MlxError> {
    let modules: Vec<String> = raw
        .iter()
        .filter(|(_, tensor)| tensor.dtype == Dtype::U32)
        .filter_map(|(name, _)| name.strip_suffix(WEIGHT))
        .map(str::to_owned)
        .collect();
    modules.into_iter().map(|module| take_module(config, raw, module)).collect()
}

fn take_module(
    config: &Value,
    raw: &mut BTreeMap<String, RawTensor>,
    module: String,
) -> Result<Tensor, MlxError> {
    let packing = packing_of(config, &module)?;
    let mut take = |suffix: &'static str| {
        let tensor = raw.remove(&format!("{module}{suffix}"));
        tensor.ok_or_else(|| MlxError::Incomplete { module: module.clone(), missing: &suffix[1..] })
    };
    let (weight, scales, biases) = (take(WEIGHT)?, take(SCALES)?, take(BIASES)?);
    let float = scale_type(&module, &scales.dtype, &biases.dtype)?;
    let Some(shape) = matrix_shape(packing, &weight.shape, &scales.shape, &biases.shape) else {
        let found =
            format!("weight {:?}, scales {:?}, biases {:?}", weight.shape, scales.shape, biases.shape);
        return Err(MlxError::Shapes { module, found, bits: packing.bits(), group: packing.group.size() });
    };
    let Packing { bits, group } = packing;
    let packed =
        MlxPacked { bits, group, float, quants: weight.data, scales: scales.data, biases: biases.data };
    Ok(Tensor::new(&format!("{module}{WEIGHT}"), shape, Storage::Mlx(packed)))
}

fn scale_type(module: &str, scales: &Dtype, biases: &Dtype) -> Result<FloatType, MlxError> {
    match (scales, biases) {
        (Dtype::Float(scales), Dtype::Float(biases)) if scales == biases => Ok(*scales),
        _ => Err(MlxError::ScaleType {
            module: module.to_owned(),
            scales: scales.to_string(),
            biases: biases.to_string(),
        }),
    }
}

/// The shape of the unpacked matrix, if the three shapes fit the packing.
fn matrix_shape(
    packing: Packing,
    weight: &[usize],
    scales: &[usize],
    biases: &[usize],
) -> Option<Vec<usize>> {
    let (words, outer) = weight.split_last()?;
    let (groups, scales_outer) = scales.split_last()?;
    let cols = words.checked_mul((u32::BITS / packing.bits()) as usize)?;
    let fits = scales == biases
        && outer == scales_outer
        && cols.is_multiple_of(packing.group.size())
        && cols / packing.group.size() == *groups;
    fits.then(|| [outer, &[cols]].concat())
}

/// The module's own packing, or the default for all.
fn packing_of(config: &Value, module: &str) -> Result<Packing, MlxError> {
    let undescribed = || MlxError::Undescribed { module: module.to_owned() };
    let all =
        config.get("quantization").or_else(|| config.get("quantization_config")).ok_or_else(undescribed)?;
    let not_an_object = |module: &str| unreadable(module, "it is not an object");
    let all = all.as_object().ok_or_else(|| not_an_object(ALL_MODULES))?;
    match all.get(module) {
        None | Some(Value::Bool(true)) => parse_packing(all, ALL_MODULES),
        Some(Value::Bool(false)) => Err(undescribed()),
        Some(own) => parse_packing(own.as_object().ok_or_else(|| not_an_object(module))?, module),
    }
}

fn parse_packing(described: &Map<String, Value>, module: &str) -> Result<Packing, MlxError> {
    let unsupported = |what: String| MlxError::Unsupported { module: module.to_owned(), what };
    if let Some(mode) = described.get("mode").filter(|mode| *mode != "affine") {
        return Err(unsupported(format!("mode {mode}")));
    }
    let bits = match number(described, "bits", module)? {
        4 => Bits::Four,
        8 => Bits::Eight,
        bits => return Err(unsupported(format!("{bits} bits"))),
    };
    let size = number(described, "group_size", module)?;
    let group = MlxGroup::from_size(size).ok_or_else(|| unsupported(format!("groups of {size}")))?;
    Ok(Packing { bits, group })
}

fn number(described: &Map<String, Value>, key: &str, module: &str) -> Result<u64, MlxError> {
    let value = described.get(key).and_then(Value::as_u64);
    value.ok_or_else(|| unreadable(module, &format!("`{key}` is missing or not a whole number")))
}

fn unreadable(module: &str, problem: &str) -> MlxError {
    MlxError::Config { module: module.to_owned(), problem: problem.to_owned() }
}
