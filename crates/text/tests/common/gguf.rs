//! Writes GGUF files that hold nothing but metadata.

use serde_json::{Map, Value};
use std::path::Path;

const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Writes `{"key": {"str" | "u32" | "bool" | "strs" | "i32s" | "f32s": value}}`.
pub fn write(path: &Path, metadata: &Map<String, Value>) {
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend(0_u64.to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (key, typed) in metadata {
        put_str(&mut out, key);
        let (kind, value) = typed.as_object().and_then(|typed| typed.iter().next()).expect("a typed value");
        put_value(&mut out, kind, value);
    }
    std::fs::write(path, out).expect("a temporary folder can be written");
}

fn put_str(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, kind: &str, value: &Value) {
    let (code, element) = match kind {
        "u32" => (U32, None),
        "bool" => (BOOL, None),
        "str" => (STRING, None),
        "strs" => (ARRAY, Some(STRING)),
        "i32s" => (ARRAY, Some(I32)),
        "f32s" => (ARRAY, Some(F32)),
        other => panic!("unknown type {other}"),
    };
    out.extend(code.to_le_bytes());
    let Some(element) = element else { return put_scalar(out, code, value) };
    let items = value.as_array().expect("a list");
    out.extend(element.to_le_bytes());
    out.extend((items.len() as u64).to_le_bytes());
    for item in items {
        put_scalar(out, element, item);
    }
}

fn put_scalar(out: &mut Vec<u8>, code: u32, value: &Value) {
    match code {
        U32 => out.extend((value.as_u64().expect("a number") as u32).to_le_bytes()),
        I32 => out.extend((value.as_i64().expect("a number") as i32).to_le_bytes()),
        F32 => out.extend((value.as_f64().expect("a number") as f32).to_le_bytes()),
        BOOL => out.push(u8::from(value.as_bool().expect("a truth value"))),
        _ => put_str(out, value.as_str().expect("a string")),
    }
}
