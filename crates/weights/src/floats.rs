//! Little-endian floating point bytes to `f32`, a row at a time.
//!
//! Relies on the caller for the lengths (`bytes.len() == out.len() * float.bytes()`); the bytes may lie at any address,
//! since neither GGUF nor safetensors promises alignment.

use crate::FloatType;
use half::f16;
use half::slice::HalfFloatSliceExt;

/// Values converted at once: long enough to amortise the call, short enough for the stack.
const HALF_BATCH: usize = 64;

pub(crate) fn read(float: FloatType, bytes: &[u8], out: &mut [f32]) {
    debug_assert_eq!(bytes.len(), out.len() * float.bytes());
    match float {
        FloatType::F32 => read_f32(bytes, out),
        FloatType::F16 => read_f16(bytes, out),
        FloatType::Bf16 => read_bf16(bytes, out),
    }
}

/// The half at the start of `bytes`, as the block formats store their scales.
pub(crate) fn half_at(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

fn read_f32(bytes: &[u8], out: &mut [f32]) {
    for (value, raw) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *value = f32::from_le_bytes(*raw);
    }
}

fn read_bf16(bytes: &[u8], out: &mut [f32]) {
    for (value, raw) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *value = f32::from_bits(u32::from(u16::from_le_bytes(*raw)) << 16);
    }
}

fn read_f16(bytes: &[u8], out: &mut [f32]) {
    let mut halves = [f16::ZERO; HALF_BATCH];
    for (values, raw) in out.chunks_mut(HALF_BATCH).zip(bytes.chunks(2 * HALF_BATCH)) {
        let halves = &mut halves[..values.len()];
        for (half, raw) in halves.iter_mut().zip(raw.as_chunks::<2>().0) {
            *half = f16::from_le_bytes(*raw);
        }
        halves.convert_to_f32_slice(values);
    }
}
