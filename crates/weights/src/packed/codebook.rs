//! GGUF's four-bit codebook formats: a nibble names one of sixteen uneven levels.
//!
//! ```text
//! IQ4_NL  d:f16 qs:[u8;16]                                  w = d * level[q]            32 values
//! IQ4_XS  d:f16 high:u16 low:[u8;4] qs:[u8;128]             w = d*(sc - 32) * level[q]  256 values, groups of 32
//! ```
//! `IQ4_XS`: scale `i` has its lower four bits in nibble `i` of `low`, its upper two in bit pair `i` of `high`.

use super::{Block, affine, split_nibbles};
use crate::floats::half_at;
use crate::{AffineForm, AffineRow, Bits, Group, Zero};

/// The sixteen levels, moved up by the universal zero point of 128.
const LEVELS: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

pub(crate) struct Iq4Nl;
pub(crate) struct Iq4Xs;

impl Block for Iq4Nl {
    const BYTES: usize = 18;
    const VALUES: usize = 32;
    const FORM: AffineForm = affine(Bits::Eight, Group::ThirtyTwo, Zero::Fixed);

    #[inline]
    fn unpack(block: &[u8], out: AffineRow<'_>) {
        out.scales[0] = half_at(block);
        look_up(&block[2..], out.quants);
    }
}

impl Block for Iq4Xs {
    const BYTES: usize = 136;
    const VALUES: usize = 256;
    const FORM: AffineForm = affine(Bits::Eight, Group::ThirtyTwo, Zero::Fixed);

    #[inline]
    fn unpack(block: &[u8], out: AffineRow<'_>) {
        let d = half_at(block);
        let high = u16::from_le_bytes([block[2], block[3]]);
        for (index, scale) in out.scales.iter_mut().enumerate() {
            let low = block[4 + index / 2] >> (4 * (index % 2)) & 0x0f;
            let six_bits = low | ((high >> (2 * index)) as u8 & 3) << 4;
            *scale = d * f32::from(six_bits as i8 - 32);
        }
        for (bytes, quants) in block[8..].as_chunks::<16>().0.iter().zip(out.quants.as_chunks_mut::<32>().0) {
            look_up(bytes, quants);
        }
    }
}

/// Sixteen bytes to the levels their thirty-two nibbles name.
#[inline]
fn look_up(bytes: &[u8], quants: &mut [u8]) {
    split_nibbles(bytes, quants);
    for quant in quants {
        *quant = LEVELS[usize::from(*quant)];
    }
}
