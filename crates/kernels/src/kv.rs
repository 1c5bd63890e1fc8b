//! How keys and values lie in a KV block.
//!
//! A block holds 32 consecutive tokens of one layer, one region per KV head:
//!
//! ```text
//! S16, Q8   keys    [head_dim / 2][32 tokens][2 dims]   i16 or i8: 16 tokens x 2 dims is one vpdpwssd operand
//!           values  [16 token pairs][dims][2 tokens]    i16 or i8, dims padded to 16
//!           scales  [32] f32 of keys, [32] f32 of values
//! F32       keys    [32 tokens][head_dim] f32, values [32 tokens][head_dim] f32
//! ```
//! S16 stores a head's key as 16-bit integers with one scale: as many bytes as f16, but dot products are exact
//! integers (any order of addition gives the same bits) and run at twice the rate of f32. The scale is bounded
//! by the vector's length as well as by its largest entry, so that no sum of 32-bit products can overflow
//! (Cauchy-Schwarz): flat vectors keep about 13 bits, vectors with an outlier up to 15.

#![allow(unsafe_code, reason = "blocks are written by several threads at once, token by token")]

/// Tokens of a block.
pub const BLOCK: usize = 32;

/// Number format of stored keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// Plain floats: the judge of the others.
    F32,
    /// 16-bit integers with a scale per token and head: the default.
    S16,
    /// 8-bit integers with a scale per token and head: half the memory.
    Q8,
}

impl KvFormat {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::S16 => "s16",
            Self::Q8 => "q8",
        }
    }

    fn element_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::S16 => 2,
            Self::Q8 => 1,
        }
    }
}

/// Bound on the length (root of the sum of squares) of a quantised query or key: the square stays below 2^31.
const MAX_LENGTH: f32 = 46_300.0;
/// Largest quantised value entry: 64 tokens x 8191 x 4095 stays below 2^31.
const MAX_VALUE: f32 = 4095.0;

/// Shape of one layer's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// Number format.
    pub format: KvFormat,
    /// KV heads.
    pub kv_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
}

/// Byte offsets inside a head's region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offsets {
    pub values: usize,
    pub key_scales: usize,
    pub value_scales: usize,
}

impl KvLayout {
    /// Value dimensions, padded to whole registers.
    pub fn padded_dim(self) -> usize {
        self.head_dim.next_multiple_of(16)
    }

    pub(crate) fn offsets(self) -> Offsets {
        let element = self.format.element_bytes();
        let keys = (BLOCK * self.head_dim.next_multiple_of(2) * element).next_multiple_of(64);
        let values = (BLOCK * self.padded_dim() * element).next_multiple_of(64);
        let key_scales = keys + values;
        Offsets { values: keys, key_scales, value_scales: key_scales + BLOCK * 4 }
    }

    /// Bytes of one head's region of a block.
    pub fn region_bytes(self) -> usize {
        self.offsets().value_scales + BLOCK * 4
    }

    /// Bytes of one block of one layer.
    pub fn block_bytes(self) -> usize {
        self.kv_heads * self.region_bytes()
    }

    /// Stores one token's key and value of one head.
    ///
    /// # Safety
    /// - `region` must point to `region_bytes()` writable bytes, aligned to 64.
    /// - No other thread may read the region or write the same `slot` meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn store(self, region: *mut u8, slot: usize, key: &[f32], value: &[f32]) {
        debug_assert!(slot < BLOCK && key.len() == self.head_dim && value.len() == self.head_dim);
        let at = self.offsets();
        // SAFETY: every offset below stays inside the region for slot < 32 and these lengths.
        unsafe {
            match self.format {
                KvFormat::F32 => {
                    let keys = region.cast::<f32>().add(slot * self.head_dim);
                    keys.copy_from_nonoverlapping(key.as_ptr(), self.head_dim);
                    let values = region.add(at.values).cast::<f32>().add(slot * self.head_dim);
                    values.copy_from_nonoverlapping(value.as_ptr(), self.head_dim);
                }
                KvFormat::S16 => {
                    let key_scale = length_scale(key, 32_767.0);
                    let value_scale = top_scale(value, MAX_VALUE);
                    put_key(region.cast::<i16>(), slot, key, key_scale.inverse, |q| q as i16);
                    let values = region.add(at.values).cast::<i16>();
                    put_value(values, slot, self.padded_dim(), value, value_scale.inverse, |q| q as i16);
                    put_scales(region, at, slot, key_scale.scale, value_scale.scale);
                }
                KvFormat::Q8 => {
                    let key_scale = top_scale(key, 127.0);
                    let value_scale = top_scale(value, 127.0);
                    put_key(region.cast::<i8>(), slot, key, key_scale.inverse, |q| q as i8);
                    let values = region.add(at.values).cast::<i8>();
                    put_value(values, slot, self.padded_dim(), value, value_scale.inverse, |q| q as i8);
                    put_scales(region, at, slot, key_scale.scale, value_scale.scale);
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512 {
    //! [`KvLayout::store`] of the 16-bit format with AVX-512.

    use std::arch::x86_64::*;

    use super::{BLOCK, KvLayout, MAX_VALUE, length_scale, put_scales, top_scale};

    /// Stores one token's key and value of one head.
    ///
    /// # Safety
    /// - As for [`KvLayout::store`], with `head_dim` a multiple of 16 and the 16-bit format.
    /// - The CPU must have AVX-512 F, BW, DQ and VL.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub unsafe fn store(layout: KvLayout, region: *mut u8, slot: usize, key: &[f32], value: &[f32]) {
        let at = layout.offsets();
        let (key_scale, value_scale) = (length_scale(key, 32_767.0), top_scale(value, MAX_VALUE));
        // SAFETY: every address stays inside the region for slot < 32 and these lengths.
        unsafe {
            let keys = region.cast::<i16>().add(slot * 2);
            let stride = _mm256_mullo_epi32(
                _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                _mm256_set1_epi32(BLOCK as i32),
            );
            for dim in (0..key.len()).step_by(16) {
                let pairs = rounded(key.as_ptr().add(dim), key_scale.inverse);
                _mm256_i32scatter_epi32::<4>(keys.add(dim * BLOCK).cast(), stride, pairs);
            }
            let values = region.add(at.values).cast::<i16>().add(slot / 2 * layout.padded_dim() * 2);
            for dim in (0..value.len()).step_by(16) {
                let lanes = _mm512_cvtepu16_epi32(rounded(value.as_ptr().add(dim), value_scale.inverse));
                let to = values.add(dim * 2);
                // A masked store leaves the other token of the pair to whoever writes it.
                if slot.is_multiple_of(2) {
                    _mm512_mask_storeu_epi16(to, 0x5555_5555, lanes);
                } else {
                    _mm512_mask_storeu_epi16(to, 0xAAAA_AAAA, _mm512_slli_epi32::<16>(lanes));
                }
            }
            put_scales(region, at, slot, key_scale.scale, value_scale.scale);
        }
    }

    /// 16 values as 16-bit integers.
    #[inline(always)]
    unsafe fn rounded(at: *const f32, inverse: f32) -> __m256i {
        // SAFETY: 16 readable floats by the caller's contract.
        unsafe {
            let scaled = _mm512_mul_ps(_mm512_loadu_ps(at), _mm512_set1_ps(inverse));
            _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(scaled))
        }
    }
}

/// A scale and what to multiply by to get there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub scale: f32,
    pub inverse: f32,
}

/// Scale that brings the largest entry to `top`.
#[inline(always)]
fn top_scale(x: &[f32], top: f32) -> Scale {
    scale_from(largest(x) / top)
}

/// Scale that keeps every entry below `top` and the vector's length below [`MAX_LENGTH`].
#[inline(always)]
pub(crate) fn length_scale(x: &[f32], top: f32) -> Scale {
    let mut lanes = [0f32; 16];
    let (chunks, rest) = x.as_chunks::<16>();
    for chunk in chunks {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane += v * v;
        }
    }
    for (lane, v) in lanes.iter_mut().zip(rest) {
        *lane += v * v;
    }
    let length = lanes.iter().sum::<f32>().sqrt();
    let by_length = length / MAX_LENGTH;
    let by_top = largest(x) / top;
    scale_from(if by_length > by_top { by_length } else { by_top })
}

/// A scale too small to invert quantises to zeros; NaN and infinity stay in the scale, where the scores see them.
#[inline(always)]
fn scale_from(scale: f32) -> Scale {
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    if inverse.is_finite() { Scale { scale, inverse } } else { Scale { scale, inverse: 0.0 } }
}

/// Largest magnitude by bit pattern: NaN comes out on top.
#[inline(always)]
fn largest(x: &[f32]) -> f32 {
    let mut lanes = [0u32; 16];
    let (chunks, rest) = x.as_chunks::<16>();
    for chunk in chunks {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane = (*lane).max(v.to_bits() & 0x7fff_ffff);
        }
    }
    for (lane, v) in lanes.iter_mut().zip(rest) {
        *lane = (*lane).max(v.to_bits() & 0x7fff_ffff);
    }
    f32::from_bits(lanes.iter().fold(0, |most, &v| most.max(v)))
}

/// Rounds half to even; magnitudes here are below 2^22.
#[inline(always)]
pub(crate) fn round(value: f32) -> i32 {
    const MAGIC: f32 = 12_582_912.0;
    ((value + MAGIC).to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32)
}

/// `[dim pair][slot][2]`.
#[inline(always)]
unsafe fn put_key<T>(keys: *mut T, slot: usize, x: &[f32], inverse: f32, cast: impl Fn(i32) -> T) {
    for (dim, value) in x.iter().enumerate() {
        let at = (dim / 2 * BLOCK + slot) * 2 + dim % 2;
        // SAFETY: inside the key area by the caller's contract.
        unsafe { keys.add(at).write(cast(round(value * inverse))) };
    }
}

/// `[slot pair][dim][2]`.
#[inline(always)]
unsafe fn put_value<T>(
    values: *mut T,
    slot: usize,
    padded: usize,
    x: &[f32],
    inverse: f32,
    cast: impl Fn(i32) -> T,
) {
    for (dim, value) in x.iter().enumerate() {
        let at = (slot / 2 * padded + dim) * 2 + slot % 2;
        // SAFETY: inside the value area by the caller's contract.
        unsafe { values.add(at).write(cast(round(value * inverse))) };
    }
}

#[inline(always)]
unsafe fn put_scales(region: *mut u8, at: Offsets, slot: usize, key: f32, value: f32) {
    // SAFETY: scale areas hold 32 floats each and the region is aligned.
    unsafe {
        region.add(at.key_scales).cast::<f32>().add(slot).write(key);
        region.add(at.value_scales).cast::<f32>().add(slot).write(value);
    }
}

/// Quantises a query: its scale, and its dims as 16-bit integers (padded by a zero where odd).
#[inline(always)]
pub(crate) fn quantise_query(x: &[f32], out: &mut [i16]) -> f32 {
    let scale = length_scale(x, 32_767.0);
    for (q, value) in out.iter_mut().zip(x) {
        *q = round(value * scale.inverse) as i16;
    }
    scale.scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantised_vectors_never_exceed_the_length_bound() {
        let flat = [1.0f32; 256];
        let mut spiky = [0.01f32; 256];
        spiky[7] = 900.0;
        for x in [flat, spiky] {
            for dims in [16, 64, 128, 256] {
                let mut q = vec![0i16; dims];
                let scale = quantise_query(&x[..dims], &mut q);
                let square: i64 = q.iter().map(|&v| i64::from(v).pow(2)).sum();
                assert!(square < i64::from(i32::MAX), "{square}");
                for (v, &got) in x.iter().zip(&q) {
                    assert!((f32::from(got) * scale - v).abs() <= scale * 0.51, "{got} x {scale} for {v}");
                }
            }
        }
    }

    #[test]
    fn a_zero_vector_has_scale_zero() {
        let mut q = [1i16; 4];
        assert_eq!(quantise_query(&[0.0; 4], &mut q), 0.0);
        assert_eq!(q, [0; 4]);
    }
}
