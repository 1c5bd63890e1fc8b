//! GGUF's 32-value blocks: one half-precision scale (and minimum) each.
//!
//! ```text
//! Q4_0  d:f16          qs:[u8;16]              w = d * (q - 8)
//! Q4_1  d:f16 m:f16    qs:[u8;16]              w = d * q + m
//! Q5_0  d:f16          qh:u32 qs:[u8;16]       w = d * (q - 16)      qh: bit k is value k's fifth bit
//! Q5_1  d:f16 m:f16    qh:u32 qs:[u8;16]       w = d * q + m
//! Q8_0  d:f16          qs:[i8;32]              w = d * q
//! ```
//! Nibbles: byte `j` holds value `j` (low) and value `j + 16` (high).

use super::{Block, add_fifth_bits, affine, split_nibbles};
use crate::floats::half_at;
use crate::{AffineForm, AffineRow, Bits, Group, Zero};

const VALUES: usize = 32;

/// `Q5_0`'s own zero point is 16; the universal one is 128.
const Q5_OFFSET: u8 = 128 - 16;

pub(crate) struct Q4_0;
pub(crate) struct Q4_1;
pub(crate) struct Q5_0;
pub(crate) struct Q5_1;
pub(crate) struct Q8_0;

impl Block for Q4_0 {
    const BYTES: usize = 18;
    const VALUES: usize = VALUES;
    const FORM: AffineForm = affine(Bits::Four, Group::ThirtyTwo, Zero::Fixed);

    #[inline]
    fn unpack(block: &[u8], out: AffineRow<'_>) {
        out.scales[0] = half_at(block);
        split_nibbles(&block[2..], out.quants);
    }
}

impl Block for Q4_1 {
    const BYTES: usize = 20;
    const VALUES: usize = VALUES;
    const FORM: AffineForm = affine(Bits::Four, Group::ThirtyTwo, Zero::Mins);

    #[inline]
    fn unpack(block: &[u8], out: AffineRow<'_>) {
        out.scales[0] = half_at(block);
        out.mins[0] = half_at(&block[2..]);
        split_nibbles(&block[4..], out.quants);
    }
}

impl Block for Q5_0 {
    const BYTES: usize = 22;
    const VALUES: usize = VALUES;
    const FORM: AffineForm = affine(Bits::Eight, Group::ThirtyTwo, Zero::Fixed);

    #[inline]
    fn unpack(block: &[u8], out: AffineRow<'_>) {
        out.scales[0] = half_at(block);
        split_nibbles(&block[6..], out.quants);
        add_fifth_bits(word_at(&block[2..]), Q5_OFFSET, out.quants);
    }
}

impl Block for Q5_1 {
    const BYTES: usize = 24;
    const VALUES: usize = VALUES;
    const FORM: AffineForm = affine(Bits::Eight, Group::ThirtyTwo, Zero::Mins);

    #[inline]
    fn unpack(block: &[u8], out: AffineRow<'_>) {
        out.scales[0] = half_at(block);
        out.mins[0] = half_at(&block[2..]);
        split_nibbles(&block[8..], out.quants);
        add_fifth_bits(word_at(&block[4..]), 0, out.quants);
    }
}

impl Block for Q8_0 {
    const BYTES: usize = 34;
    const VALUES: usize = VALUES;
    const FORM: AffineForm = affine(Bits::Eight, Group::ThirtyTwo, Zero::Fixed);

    #[inline]
    fn unpack(block: &[u8], out: AffineRow<'_>) {
        out.scales[0] = half_at(block);
        for (quant, byte) in out.quants.iter_mut().zip(&block[2..]) {
            *quant = byte.wrapping_add(Bits::Eight.zero_point());
        }
    }
}

#[inline]
fn word_at(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
