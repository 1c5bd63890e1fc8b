//! GGUF's K formats: 256-value blocks whose groups have small integer scales under one half-precision scale.
//!
//! ```text
//! Q2_K  scales:[u8;16] qs:[u8;64] d:f16 dmin:f16             w = d*(sc & 15) * q - dmin*(sc >> 4)   groups of 16
//! Q3_K  hmask:[u8;32] qs:[u8;64] scales:[u8;12] d:f16        w = d*(sc - 32) * (q - 4)              groups of 16
//! Q4_K  d:f16 dmin:f16 scales:[u8;12] qs:[u8;128]            w = d*sc * q - dmin*m                  groups of 32
//! Q5_K  d:f16 dmin:f16 scales:[u8;12] qh:[u8;32] qs:[u8;128] w = d*sc * q - dmin*m                  groups of 32
//! Q6_K  ql:[u8;128] qh:[u8;64] scales:[i8;16] d:f16          w = d*sc * (q - 32)                    groups of 16
//! ```
//! 2-bit planes: 32 bytes serve 128 values, plane `j` (bits 2j, 2j+1) being values `32j..32j+32`.
//! Nibble planes: 32 bytes serve 64 values, the low nibbles first.

use super::{Block, affine, split_nibbles};
use crate::floats::half_at;
use crate::{AffineForm, AffineRow, Bits, Group, Zero};

const VALUES: usize = 256;

/// `Q3_K`'s own zero point is 4; the universal one is 8.
const Q3_OFFSET: u8 = 8 - 4;

/// `Q6_K`'s own zero point is 32; the universal one is 128.
const Q6_OFFSET: u8 = 128 - 32;

pub(crate) struct Q2K;
pub(crate) struct Q3K;
pub(crate) struct Q4K;
pub(crate) struct Q5K;
pub(crate) struct Q6K;

impl Block for Q2K {
    const BYTES: usize = 84;
    const VALUES: usize = VALUES;
    const FORM: AffineForm = affine(Bits::Four, Group::Sixteen, Zero::Mins);

    #[inline]
    fn unpack(block: &[u8], out: AffineRow<'_>) {
        let (d, dmin) = (half_at(&block[80..]), half_at(&block[82..]));
        for ((scale, min), packed) in out.scales.iter_mut().zip(out.mins).zip(&block[..16]) {
            *scale = d * f32::from(packed & 0x0f);
            *min = -(dmin * f32::from(packed >> 4));
        }
        split_two_bit_planes(&block[16..80], out.quants);
    }
}

impl Block for Q3K {
    const BYTES: usize = 110;
    const VALUES: usize = VALUES;
    const FORM: AffineForm = affine(Bits::Four, Group::Sixteen, Zero::Fixed);

    #[inline]
    fn unpack(block: &[u8], out: AffineRow<'_>) {
        let d = half_at(&block[108..]);
        for (scale, six_bits) in out.scales.iter_mut().zip(q3_scales(&block[96..108])) {
            *scale = d * f32::from(six_bits as i8 - 32);
        }
        split_two_bit_planes(&block[32..96], out.quants);
        for (plane, quants) in out.quants.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (quant, mask) in quants.iter_mut().zip(&block[..32]) {
                *quant = (*quant | (mask >> plane & 1) << 2) + Q3_OFFSET;
            }
        }
    }
}

impl Block for Q4K {
    const BYTES: usize = 144;
    const VALUES: usize = VALUES;
    const FORM: AffineForm = affine(Bits::Four, Group::ThirtyTwo, Zero::Mins);

    #[inline]
    fn unpack(block: &[u8], out: AffineRow<'_>) {
        unpack_scales_and_mins(block, out.scales, out.mins);
        split_nibble_planes(&block[16..], out.quants);
    }
}

impl Block for Q5K {
    const BYTES: usize = 176;
    const VALUES: usize = VALUES;
    const FORM: AffineForm = affine(Bits::Eight, Group::ThirtyTwo, Zero::Mins);

    #[inline]
    fn unpack(block: &[u8], out: AffineRow<'_>) {
        unpack_scales_and_mins(block, out.scales, out.mins);
        split_nibble_planes(&block[48..], out.quants);
        for (plane, quants) in out.quants.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (quant, fifths) in quants.iter_mut().zip(&block[16..48]) {
                *quant |= (fifths >> plane & 1) << 4;
            }
        }
    }
}

impl Block for Q6K {
    const BYTES: usize = 210;
    const VALUES: usize = VALUES;
    const FORM: AffineForm = affine(Bits::Eight, Group::Sixteen, Zero::Fixed);

    #[inline]
    fn unpack(block: &[u8], out: AffineRow<'_>) {
        let d = half_at(&block[208..]);
        for (scale, factor) in out.scales.iter_mut().zip(&block[192..208]) {
            *scale = d * f32::from(*factor as i8);
        }
        split_two_bit_planes(&block[128..192], out.quants);
        let halves = out.quants.as_chunks_mut::<128>().0.iter_mut();
        for (quants, low) in halves.zip(block[..128].as_chunks::<64>().0) {
            let (first, second) = quants.split_at_mut(64);
            for ((a, b), low) in first.iter_mut().zip(second).zip(low) {
                *a = (*a << 4 | low & 0x0f) + Q6_OFFSET;
                *b = (*b << 4 | low >> 4) + Q6_OFFSET;
            }
        }
    }
}

/// 64 bytes to 256 two-bit values.
#[inline]
fn split_two_bit_planes(bytes: &[u8], out: &mut [u8]) {
    for (bytes, out) in bytes.as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<128>().0) {
        for (plane, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (quant, byte) in out.iter_mut().zip(bytes) {
                *quant = byte >> (2 * plane) & 3;
            }
        }
    }
}

/// 128 bytes to 256 four-bit values.
#[inline]
fn split_nibble_planes(bytes: &[u8], out: &mut [u8]) {
    for (bytes, out) in bytes.as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<64>().0) {
        split_nibbles(bytes, out);
    }
}

/// `Q3_K`'s sixteen six-bit scales: low nibbles in bytes 0..8 (two planes), upper bit pairs in bytes 8..12 (four planes).
#[inline]
fn q3_scales(packed: &[u8]) -> [u8; 16] {
    let mut scales = [0; 16];
    split_nibbles(&packed[..8], &mut scales);
    for (index, scale) in scales.iter_mut().enumerate() {
        *scale |= (packed[8 + index % 4] >> (2 * (index / 4)) & 3) << 4;
    }
    scales
}

/// `Q4_K`'s and `Q5_K`'s eight six-bit scales and minima in twelve bytes, under the block's `d` and `dmin`:
///
/// ```text
/// byte  0..4   ss aaaaaa     a: scale 0..4 whole     s: upper bits of scale 4..8
/// byte  4..8   mm bbbbbb     b: min   0..4 whole     m: upper bits of min   4..8
/// byte  8..12  nnnn rrrr     r: lower bits of scale 4..8     n: lower bits of min 4..8
/// ```
#[inline]
fn unpack_scales_and_mins(block: &[u8], scales: &mut [f32], mins: &mut [f32]) {
    let (d, dmin, packed) = (half_at(block), half_at(&block[2..]), &block[4..16]);
    for index in 0..4 {
        let (scale, min, rest) = (packed[index], packed[4 + index], packed[8 + index]);
        scales[index] = d * f32::from(scale & 0x3f);
        mins[index] = -(dmin * f32::from(min & 0x3f));
        scales[4 + index] = d * f32::from(rest & 0x0f | scale >> 6 << 4);
        mins[4 + index] = -(dmin * f32::from(rest >> 4 | min >> 6 << 4));
    }
}
