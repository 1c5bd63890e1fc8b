//! The header of a safetensors file.
//!
//! ```text
//! length:u64  header: length bytes of JSON { name: { dtype, shape, data_offsets: [start, end] } }  data
//! ```
//! Read by hand rather than by the `safetensors` crate, whose check adds up the offsets a file claims without looking for
//! overflow, keeps the last of two equal names and refuses a file for one dtype it does not know.
//!
//! Relies on [`Mapping`] for the bytes. Must never believe an offset before comparing it with the file.

use crate::mapping::{Mapping, Region};
use crate::{FloatType, SafetensorsError};
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

const LENGTH_BYTES: usize = 8;

/// What the format's own implementation allows; a header of 100,000 tensors takes a tenth of it.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The key that describes the file instead of a tensor.
const ABOUT_THE_FILE: &str = "__metadata__";

/// A tensor as the file holds it, of whatever type.
#[derive(Debug, Clone)]
pub(super) struct RawTensor {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) data: Region,
}

/// The types that matter here; any other keeps its name for the error text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Dtype {
    Float(FloatType),
    U32,
    Other(String),
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The header's entries in order of appearance.
struct Header(Vec<(String, Entry)>);

/// Reads everything but the tensors' data.
pub(super) fn parse(mapping: &Arc<Mapping>) -> Result<BTreeMap<String, RawTensor>, SafetensorsError> {
    let bytes = mapping.bytes();
    let header_end = LENGTH_BYTES + header_length(bytes)?;
    let Header(mut entries) = serde_json::from_slice(&bytes[LENGTH_BYTES..header_end])?;
    entries.sort_by_key(|(_, entry)| entry.data_offsets);
    check_layout(&entries, (bytes.len() - header_end) as u64)?;
    entries
        .into_iter()
        .map(|(name, entry)| Ok((name.clone(), place(mapping, header_end, name, entry)?)))
        .collect()
}

fn header_length(bytes: &[u8]) -> Result<usize, SafetensorsError> {
    let (length, rest) =
        bytes.split_first_chunk::<LENGTH_BYTES>().ok_or(SafetensorsError::TooShort { len: bytes.len() })?;
    let claimed = u64::from_le_bytes(*length);
    let limit = MAX_HEADER_BYTES.min(rest.len() as u64);
    if claimed > limit {
        Err(SafetensorsError::HeaderLength { claimed, limit })
    } else {
        Ok(claimed as usize)
    }
}

/// Every byte of the data belongs to exactly one tensor.
fn check_layout(entries: &[(String, Entry)], len: u64) -> Result<(), SafetensorsError> {
    let mut wanted = 0;
    for (name, entry) in entries {
        let (start, end) = entry.data_offsets;
        if start > end || end > len {
            return Err(SafetensorsError::OutOfFile { name: name.clone(), start, end, len });
        }
        if start != wanted {
            return Err(SafetensorsError::NotContiguous { name: name.clone(), start, wanted });
        }
        wanted = end;
    }
    if wanted == len { Ok(()) } else { Err(SafetensorsError::Trailing { bytes: len - wanted }) }
}

fn place(
    mapping: &Arc<Mapping>,
    data_start: usize,
    name: String,
    entry: Entry,
) -> Result<RawTensor, SafetensorsError> {
    let (start, end) = entry.data_offsets;
    let dtype = Dtype::from_name(entry.dtype);
    let Some((shape, values)) = shape_of(&entry.shape) else {
        return Err(SafetensorsError::Shape { name, shape: entry.shape });
    };
    let (given, wanted) = (end - start, dtype.width().map(|width| values.saturating_mul(width)));
    if let Some(wanted) = wanted.filter(|wanted| *wanted != given) {
        return Err(SafetensorsError::Size { name, given, wanted });
    }
    let range = data_start + start as usize..data_start + end as usize;
    let len = (mapping.bytes().len() - data_start) as u64;
    let data = Region::new(mapping, range).ok_or(SafetensorsError::OutOfFile { name, start, end, len })?;
    Ok(RawTensor { dtype, shape, data })
}

/// The dimensions and their product, unless one is zero or the product overflows.
fn shape_of(sizes: &[u64]) -> Option<(Vec<usize>, u64)> {
    let values = sizes.iter().try_fold(1_u64, |product, size| product.checked_mul(*size))?;
    let shape = sizes.iter().map(|size| usize::try_from(*size).ok()).collect::<Option<Vec<_>>>()?;
    (values > 0).then_some((shape, values))
}

impl Dtype {
    fn from_name(name: String) -> Dtype {
        match name.as_str() {
            "F32" => Dtype::Float(FloatType::F32),
            "F16" => Dtype::Float(FloatType::F16),
            "BF16" => Dtype::Float(FloatType::Bf16),
            "U32" => Dtype::U32,
            _ => Dtype::Other(name),
        }
    }

    /// Bytes of a value, where this reader needs to know.
    fn width(&self) -> Option<u64> {
        match self {
            Dtype::Float(float) => Some(float.bytes() as u64),
            Dtype::U32 => Some(4),
            Dtype::Other(_) => None,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dtype::Float(FloatType::F32) => "F32",
            Dtype::Float(FloatType::F16) => "F16",
            Dtype::Float(FloatType::Bf16) => "BF16",
            Dtype::U32 => "U32",
            Dtype::Other(name) => name,
        })
    }
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Header, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut names = std::collections::HashSet::new();
        let mut entries = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format_args!("`{name}` appears twice")));
            }
            if name == ABOUT_THE_FILE {
                map.next_value::<IgnoredAny>()?;
            } else {
                entries.push((name, map.next_value()?));
            }
        }
        Ok(Header(entries))
    }
}
