//! The key-value section of a GGUF file.
//!
//! Scalars are kept as values; strings and arrays stay in the mapped file as byte ranges and are decoded when asked for,
//! so that a vocabulary of 260,000 tokens costs nothing here. Everything is checked once at [`parse`]; a getter gives
//! `None` for a key that is missing or of another type ([`Metadata::kind`] tells the two apart).

use super::cursor::Cursor;
use crate::GgufError;
use crate::mapping::Mapping;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Shortest possible entry: empty key (8), type (4), one byte of value.
pub(super) const LEAST_ENTRY_BYTES: usize = 13;

/// What a GGUF file says about its model.
#[derive(Clone)]
pub struct Metadata {
    mapping: Arc<Mapping>,
    entries: BTreeMap<String, Value>,
}

/// The type of a metadata value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names say it all
pub enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

#[derive(Debug, Clone)]
enum Value {
    /// A number or bool of up to eight bytes, as in the file, zero-extended.
    Scalar {
        kind: Kind,
        bytes: [u8; 8],
    },
    String(Range<usize>),
    Array(Array),
}

#[derive(Debug, Clone)]
struct Array {
    kind: Kind,
    count: usize,
    /// The elements; strings with their length prefixes.
    bytes: Range<usize>,
}

impl Metadata {
    /// The string under `key`.
    pub fn str(&self, key: &str) -> Option<&str> {
        match self.entries.get(key)? {
            Value::String(range) => std::str::from_utf8(&self.mapping.bytes()[range.clone()]).ok(),
            _ => None,
        }
    }

    /// The integer under `key`, whatever its width, if it fits.
    pub fn u32(&self, key: &str) -> Option<u32> {
        self.integer(key)?.try_into().ok()
    }

    /// The integer under `key`, whatever its width, if it is not negative.
    pub fn u64(&self, key: &str) -> Option<u64> {
        self.integer(key)?.try_into().ok()
    }

    /// The floating point number under `key`; a double is rounded.
    pub fn f32(&self, key: &str) -> Option<f32> {
        let (kind, bytes) = self.scalar(key)?;
        float(kind, bytes)
    }

    /// The truth value under `key`.
    pub fn bool(&self, key: &str) -> Option<bool> {
        let (kind, bytes) = self.scalar(key)?;
        (kind == Kind::Bool).then_some(bytes[0] != 0)
    }

    /// The array of strings under `key`, decoded as it is walked.
    pub fn strs(&self, key: &str) -> Option<Strings<'_>> {
        let array = self.array(key)?;
        let bytes = &self.mapping.bytes()[array.bytes.clone()];
        (array.kind == Kind::String).then_some(Strings { bytes, left: array.count })
    }

    /// The array of integers (of any width, if all fit) under `key`.
    pub fn i32s(&self, key: &str) -> Option<Numbers<'_, i32>> {
        self.numbers(key, |kind, bytes| integer(kind, bytes)?.try_into().ok())
    }

    /// The array of floating point numbers under `key`.
    pub fn f32s(&self, key: &str) -> Option<Numbers<'_, f32>> {
        self.numbers(key, float)
    }

    /// The array of truth values under `key`.
    pub fn bools(&self, key: &str) -> Option<Numbers<'_, bool>> {
        self.numbers(key, |kind, bytes| (kind == Kind::Bool).then_some(bytes[0] != 0))
    }

    /// The type of the value under `key`, `None` where there is none.
    pub fn kind(&self, key: &str) -> Option<Kind> {
        Some(match self.entries.get(key)? {
            Value::Scalar { kind, .. } => *kind,
            Value::String(_) => Kind::String,
            Value::Array(_) => Kind::Array,
        })
    }

    /// The number of elements of the array under `key`.
    pub fn array_len(&self, key: &str) -> Option<usize> {
        self.array(key).map(|array| array.count)
    }

    /// Every key, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    fn scalar(&self, key: &str) -> Option<(Kind, &[u8])> {
        match self.entries.get(key)? {
            Value::Scalar { kind, bytes } => Some((*kind, bytes)),
            _ => None,
        }
    }

    fn integer(&self, key: &str) -> Option<i128> {
        let (kind, bytes) = self.scalar(key)?;
        integer(kind, bytes)
    }

    fn array(&self, key: &str) -> Option<&Array> {
        match self.entries.get(key)? {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }

    /// The array under `key` if `read` takes every element.
    fn numbers<T>(&self, key: &str, read: fn(Kind, &[u8]) -> Option<T>) -> Option<Numbers<'_, T>> {
        let array = self.array(key)?;
        let elements = self.mapping.bytes()[array.bytes.clone()].chunks_exact(array.kind.width()?);
        let numbers = Numbers { kind: array.kind, elements, read };
        let readable = numbers.elements.clone().all(|bytes| read(array.kind, bytes).is_some());
        readable.then_some(numbers)
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.keys()).finish()
    }
}

/// An array of strings in a mapped file.
#[derive(Debug, Clone)]
pub struct Strings<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.left = self.left.checked_sub(1)?;
        let mut cursor = Cursor::new(self.bytes);
        // Checked at parse: only a file rewritten since can fail here, and then reads as empty strings.
        let text = cursor.string("string").unwrap_or_default();
        self.bytes = &self.bytes[cursor.position()..];
        Some(text)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Strings<'_> {}

/// An array of numbers in a mapped file.
#[derive(Debug, Clone)]
pub struct Numbers<'a, T> {
    kind: Kind,
    elements: std::slice::ChunksExact<'a, u8>,
    /// Takes every element: checked when this was made.
    read: fn(Kind, &[u8]) -> Option<T>,
}

impl<T> Iterator for Numbers<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        (self.read)(self.kind, self.elements.next()?)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.elements.size_hint()
    }
}

impl<T> ExactSizeIterator for Numbers<'_, T> {}

impl Kind {
    fn from_code(code: u32) -> Option<Kind> {
        const KINDS: [Kind; 13] = [
            Kind::U8,
            Kind::I8,
            Kind::U16,
            Kind::I16,
            Kind::U32,
            Kind::I32,
            Kind::F32,
            Kind::Bool,
            Kind::String,
            Kind::Array,
            Kind::U64,
            Kind::I64,
            Kind::F64,
        ];
        KINDS.get(code as usize).copied()
    }

    /// Bytes of a value, where it is the same for all of the kind.
    fn width(self) -> Option<usize> {
        match self {
            Kind::U8 | Kind::I8 | Kind::Bool => Some(1),
            Kind::U16 | Kind::I16 => Some(2),
            Kind::U32 | Kind::I32 | Kind::F32 => Some(4),
            Kind::U64 | Kind::I64 | Kind::F64 => Some(8),
            Kind::String | Kind::Array => None,
        }
    }
}

/// The integer in `bytes` (at least as many as the kind has), sign- or zero-extended.
fn integer(kind: Kind, bytes: &[u8]) -> Option<i128> {
    let mut wide = [0; 8];
    let width = kind.width()?;
    wide[..width].copy_from_slice(&bytes[..width]);
    let unsigned = u64::from_le_bytes(wide);
    match kind {
        Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 => Some(i128::from(unsigned)),
        Kind::I8 => Some(i128::from(unsigned as i8)),
        Kind::I16 => Some(i128::from(unsigned as i16)),
        Kind::I32 => Some(i128::from(unsigned as i32)),
        Kind::I64 => Some(i128::from(unsigned as i64)),
        _ => None,
    }
}

fn float(kind: Kind, bytes: &[u8]) -> Option<f32> {
    match kind {
        Kind::F32 => Some(f32::from_le_bytes(*bytes.first_chunk()?)),
        Kind::F64 => Some(f64::from_le_bytes(*bytes.first_chunk()?) as f32),
        _ => None,
    }
}

/// Reads `count` entries.
pub(super) fn parse(
    cursor: &mut Cursor<'_>,
    count: u64,
    mapping: &Arc<Mapping>,
) -> Result<Metadata, GgufError> {
    let mut entries = BTreeMap::new();
    for _ in 0..count {
        let key = cursor.string("metadata key")?;
        let value = parse_value(cursor, key)?;
        if entries.insert(key.to_owned(), value).is_some() {
            return Err(GgufError::DuplicateKey { key: key.to_owned() });
        }
    }
    Ok(Metadata { mapping: Arc::clone(mapping), entries })
}

fn parse_kind(cursor: &mut Cursor<'_>, key: &str) -> Result<Kind, GgufError> {
    let code = cursor.u32("metadata value type")?;
    Kind::from_code(code).ok_or_else(|| GgufError::ValueType { key: key.to_owned(), code })
}

fn parse_value(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, GgufError> {
    let kind = parse_kind(cursor, key)?;
    match (kind, kind.width()) {
        (Kind::Array, _) => Ok(Value::Array(parse_array(cursor, key)?)),
        (_, None) => Ok(Value::String(cursor.string_range("metadata string")?)),
        (_, Some(width)) => {
            let raw = cursor.take(width as u64, "metadata value")?;
            check_bools(kind, raw, key)?;
            let mut bytes = [0; 8];
            bytes[..width].copy_from_slice(raw);
            Ok(Value::Scalar { kind, bytes })
        }
    }
}

fn parse_array(cursor: &mut Cursor<'_>, key: &str) -> Result<Array, GgufError> {
    let kind = parse_kind(cursor, key)?;
    let nested = || GgufError::NestedArray { key: key.to_owned() };
    let least_bytes = match kind {
        Kind::Array => return Err(nested()),
        Kind::String => 8,
        _ => kind.width().unwrap_or(1),
    };
    let count = cursor.count(least_bytes, "array elements")?;
    let start = cursor.position();
    if kind == Kind::String {
        for _ in 0..count {
            cursor.string("string of an array")?;
        }
    } else {
        let raw = cursor.take(count * least_bytes as u64, "array elements")?;
        check_bools(kind, raw, key)?;
    }
    Ok(Array { kind, count: count as usize, bytes: start..cursor.position() })
}

fn check_bools(kind: Kind, bytes: &[u8], key: &str) -> Result<(), GgufError> {
    match bytes.iter().find(|byte| **byte > 1) {
        Some(byte) if kind == Kind::Bool => Err(GgufError::Bool { key: key.to_owned(), byte: *byte }),
        _ => Ok(()),
    }
}
