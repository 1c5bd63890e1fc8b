//! GGUF files, versions 2 and 3, little-endian.
//!
//! ```text
//! "GGUF" version:u32 tensors:u64 entries:u64
//! entries x { key:string type:u32 value }                             metadata
//! tensors x { name:string dims:u32 dim:u64.. type:u32 offset:u64 }    tensor table, offsets into the data
//! padding to general.alignment
//! data
//! ```
//! A large model may be split into several such files ([`split`]).
//! Relies on the mapped file for the bytes. Must never believe a count, length or offset before comparing it with the file.

mod cursor;
mod error;
mod metadata;
pub(crate) mod split;
mod tensor_type;

pub use error::GgufError;
pub use metadata::{Kind, Metadata, Numbers, Strings};

use crate::Tensor;
use crate::mapping::{Mapping, Region};
use cursor::Cursor;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tensor_type::TensorType;

const MAGIC: [u8; 4] = *b"GGUF";
const VERSIONS: [u32; 2] = [2, 3];

/// Shortest possible tensor: empty name (8), dims (4), one dimension (8), type (4), offset (8).
const LEAST_TENSOR_BYTES: usize = 32;

/// The format's own limit.
const MAX_DIMS: u32 = 4;

/// Where a file does not say.
const DEFAULT_ALIGNMENT: u32 = 32;

/// A page of the largest common size; real files use 32 to 4,096.
const MAX_ALIGNMENT: u32 = 65_536;

/// A row of the tensor table, its own claims checked, its place not yet.
struct TensorInfo {
    name: String,
    shape: Vec<usize>,
    kind: TensorType,
    bytes: usize,
    offset: u64,
}

/// Whether the file begins like a GGUF file.
pub(crate) fn recognises(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Reads everything but the tensors' data.
pub(crate) fn parse(mapping: &Arc<Mapping>) -> Result<(Metadata, BTreeMap<String, Tensor>), GgufError> {
    let cursor = &mut Cursor::new(mapping.bytes());
    parse_version(cursor)?;
    let tensor_count = cursor.count(LEAST_TENSOR_BYTES, "tensors")?;
    let entry_count = cursor.count(metadata::LEAST_ENTRY_BYTES, "metadata entries")?;
    let metadata = metadata::parse(cursor, entry_count, mapping)?;
    let alignment = alignment(&metadata)?;
    let infos = (0..tensor_count).map(|_| parse_info(cursor)).collect::<Result<Vec<_>, _>>()?;
    let data_start = cursor.position().next_multiple_of(alignment as usize);
    let tensors = place_tensors(mapping, infos, data_start, alignment)?;
    Ok((metadata, tensors))
}

fn parse_version(cursor: &mut Cursor<'_>) -> Result<(), GgufError> {
    if cursor.array("magic")? != MAGIC {
        return Err(GgufError::Magic);
    }
    let version = cursor.u32("version")?;
    if VERSIONS.contains(&version) {
        Ok(())
    } else if VERSIONS.contains(&version.swap_bytes()) {
        Err(GgufError::BigEndian)
    } else {
        Err(GgufError::Version(version))
    }
}

fn alignment(metadata: &Metadata) -> Result<u32, GgufError> {
    const KEY: &str = "general.alignment";
    if metadata.kind(KEY).is_none() {
        return Ok(DEFAULT_ALIGNMENT);
    }
    let usable = |alignment: &u32| alignment.is_power_of_two() && *alignment <= MAX_ALIGNMENT;
    metadata.u32(KEY).filter(usable).ok_or(GgufError::Alignment { limit: MAX_ALIGNMENT })
}

fn parse_info(cursor: &mut Cursor<'_>) -> Result<TensorInfo, GgufError> {
    let name = cursor.string("tensor name")?.to_owned();
    let dims = cursor.u32("tensor dimensions")?;
    if !(1..=MAX_DIMS).contains(&dims) {
        return Err(GgufError::DimensionCount { name, dims });
    }
    let sizes = (0..dims).map(|_| cursor.u64("tensor dimensions")).collect::<Result<Vec<_>, _>>()?;
    let kind = TensorType::from_code(cursor.u32("tensor type")?)
        .map_err(|kind| GgufError::TensorType { name: name.clone(), kind })?;
    let offset = cursor.u64("tensor offset")?;
    let Some((shape, values)) = shape_of(&sizes) else { return Err(GgufError::Shape { name, shape: sizes }) };
    let (cols, block) = (shape[shape.len() - 1], kind.block_values());
    if !cols.is_multiple_of(block) {
        return Err(GgufError::PartialBlock { name, cols, block });
    }
    match (values / block).checked_mul(kind.block_bytes()) {
        Some(bytes) => Ok(TensorInfo { name, shape, kind, bytes, offset }),
        None => Err(GgufError::Shape { name, shape: sizes }),
    }
}

/// The dimensions outermost first and their product, unless one is zero or the product overflows.
fn shape_of(sizes: &[u64]) -> Option<(Vec<usize>, usize)> {
    let shape = sizes.iter().rev().map(|size| usize::try_from(*size).ok()).collect::<Option<Vec<_>>>()?;
    let values = shape.iter().try_fold(1_usize, |product, size| product.checked_mul(*size))?;
    (values > 0).then_some((shape, values))
}

fn place_tensors(
    mapping: &Arc<Mapping>,
    infos: Vec<TensorInfo>,
    data_start: usize,
    alignment: u32,
) -> Result<BTreeMap<String, Tensor>, GgufError> {
    let mut places = Vec::with_capacity(infos.len());
    let mut tensors = BTreeMap::new();
    for info in infos {
        let range = place(&info, data_start, alignment, mapping.bytes().len())?;
        let out_of_file = || GgufError::OutOfFile { name: info.name.clone(), len: mapping.bytes().len() };
        let data = Region::new(mapping, range.clone()).ok_or_else(out_of_file)?;
        let tensor = Tensor::new(&info.name, info.shape, info.kind.storage(data));
        places.push((range, info.name.clone()));
        if tensors.insert(info.name.clone(), tensor).is_some() {
            return Err(GgufError::DuplicateTensor { name: info.name });
        }
    }
    check_layout(places, mapping.bytes().len(), alignment)?;
    Ok(tensors)
}

fn place(
    info: &TensorInfo,
    data_start: usize,
    alignment: u32,
    len: usize,
) -> Result<Range<usize>, GgufError> {
    let name = || info.name.clone();
    if !info.offset.is_multiple_of(u64::from(alignment)) {
        return Err(GgufError::Misaligned { name: name(), offset: info.offset, alignment });
    }
    let start = usize::try_from(info.offset).ok().and_then(|offset| offset.checked_add(data_start));
    let range = start.and_then(|start| Some(start..start.checked_add(info.bytes)?));
    range.ok_or_else(|| GgufError::OutOfFile { name: name(), len })
}

/// No two tensors share a byte, and the last one ends the file but for padding.
fn check_layout(
    mut places: Vec<(Range<usize>, String)>,
    len: usize,
    alignment: u32,
) -> Result<(), GgufError> {
    places.sort_by_key(|(range, _)| range.start);
    for pair in places.windows(2) {
        let [(before, first), (after, second)] = pair else { continue };
        if after.start < before.end {
            return Err(GgufError::Overlap { first: first.clone(), second: second.clone() });
        }
    }
    let trailing = places.last().map_or(0, |(range, _)| len - range.end);
    if trailing >= alignment as usize { Err(GgufError::Trailing { bytes: trailing }) } else { Ok(()) }
}
