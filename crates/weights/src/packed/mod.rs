//! Packed integer formats, brought to the universal affine form.
//!
//! ```text
//! one row in the file   | block | block | ... |       block = scales + packed quants, BYTES long, VALUES values
//! AffineRow             quants [VALUES per block]  scales [VALUES / group per block]  mins (only with Zero::Mins)
//! ```
//!
//! Each format is one [`Block`] implementation: how to unpack one block. The row loops, and the exact dequantisation
//! `scale * quant + min`, are written once here and instantiated per format, so the inner loops have constant bounds and
//! no branches. Reads only the bytes it is given; allocates nothing.

mod codebook;
mod k_quants;
mod legacy;
pub(crate) mod mlx;

pub(crate) use codebook::{Iq4Nl, Iq4Xs};
pub(crate) use k_quants::{Q2K, Q3K, Q4K, Q5K, Q6K};
pub(crate) use legacy::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};

use crate::{AffineForm, AffineRow, Bits, Group, Zero};

/// The most values a block holds (the K formats), for buffers on the stack.
const MAX_VALUES: usize = 256;

/// The most groups a block holds.
const MAX_GROUPS: usize = MAX_VALUES / Group::Sixteen.len();

/// One block format.
pub(crate) trait Block {
    /// Length of a block in the file.
    const BYTES: usize;
    /// Values in a block.
    const VALUES: usize;
    /// What it unpacks to.
    const FORM: AffineForm;

    /// Unpacks one block of [`Self::BYTES`] into exactly one block's worth of the output.
    fn unpack(block: &[u8], out: AffineRow<'_>);
}

/// A block format as a value: its sizes and its two row readers.
#[derive(Debug)]
pub(crate) struct Codec {
    pub(crate) block_bytes: usize,
    pub(crate) block_values: usize,
    pub(crate) form: AffineForm,
    pub(crate) read_affine: fn(&[u8], AffineRow<'_>),
    pub(crate) read_f32: fn(&[u8], &mut [f32]),
}

impl Codec {
    pub(crate) const fn of<B: Block>() -> Codec {
        Codec {
            block_bytes: B::BYTES,
            block_values: B::VALUES,
            form: B::FORM,
            read_affine: read_affine::<B>,
            read_f32: read_f32::<B>,
        }
    }

    /// Bytes of a row of `cols` values, which the caller has checked to be whole blocks.
    pub(crate) fn row_bytes(&self, cols: usize) -> usize {
        debug_assert!(cols.is_multiple_of(self.block_values));
        cols / self.block_values * self.block_bytes
    }
}

const fn affine(bits: Bits, group: Group, zero: Zero) -> AffineForm {
    AffineForm { bits, group, zero }
}

fn read_affine<B: Block>(row: &[u8], AffineRow { quants, scales, mins }: AffineRow<'_>) {
    let groups = B::VALUES / B::FORM.group.len();
    let quants = quants.chunks_exact_mut(B::VALUES);
    let blocks = row.chunks_exact(B::BYTES).zip(quants).zip(scales.chunks_exact_mut(groups));
    match B::FORM.zero {
        Zero::Fixed => {
            for ((block, quants), scales) in blocks {
                B::unpack(block, AffineRow { quants, scales, mins: &mut [] });
            }
        }
        Zero::Mins => {
            for (((block, quants), scales), mins) in blocks.zip(mins.chunks_exact_mut(groups)) {
                B::unpack(block, AffineRow { quants, scales, mins });
            }
        }
    }
}

fn read_f32<B: Block>(row: &[u8], out: &mut [f32]) {
    let groups = B::VALUES / B::FORM.group.len();
    let (mut quants, mut scales, mut mins) = ([0; MAX_VALUES], [0.0; MAX_GROUPS], [0.0; MAX_GROUPS]);
    let (quants, scales, mins) = (&mut quants[..B::VALUES], &mut scales[..groups], &mut mins[..groups]);
    for (block, out) in row.chunks_exact(B::BYTES).zip(out.chunks_exact_mut(B::VALUES)) {
        B::unpack(block, AffineRow { quants, scales, mins });
        for (group, out) in out.chunks_exact_mut(B::FORM.group.len()).enumerate() {
            let quants = &quants[group * B::FORM.group.len()..][..B::FORM.group.len()];
            match B::FORM.zero {
                Zero::Fixed => expand_fixed(quants, B::FORM.bits.zero_point(), scales[group], out),
                Zero::Mins => expand_mins(quants, scales[group], mins[group], out),
            }
        }
    }
}

/// `scale * (quant - zero)`: exact in the integers, one rounding in the product.
#[inline]
fn expand_fixed(quants: &[u8], zero: u8, scale: f32, out: &mut [f32]) {
    for (value, quant) in out.iter_mut().zip(quants) {
        *value = scale * f32::from(i16::from(*quant) - i16::from(zero));
    }
}

#[inline]
fn expand_mins(quants: &[u8], scale: f32, min: f32, out: &mut [f32]) {
    for (value, quant) in out.iter_mut().zip(quants) {
        *value = scale * f32::from(*quant) + min;
    }
}

/// The low nibbles of `bytes` to the first half of `out`, the high ones to the second: the order GGUF packs in.
#[inline]
fn split_nibbles(bytes: &[u8], out: &mut [u8]) {
    let (low, high) = out.split_at_mut(bytes.len());
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        *low = byte & 0x0f;
        *high = byte >> 4;
    }
}

/// Sets bit 4 of each quant from the same-numbered bit of `bits`, then shifts by `offset`.
#[inline]
fn add_fifth_bits(bits: u32, offset: u8, quants: &mut [u8]) {
    for (index, quant) in quants.iter_mut().enumerate() {
        let fifth = (bits >> index) as u8 & 1;
        *quant = (*quant | fifth << 4) + offset;
    }
}
