//! Activations as the matmul kernels read them: tiles of six rows, interleaved, so that one broadcast stream
//! serves a tile.
//!
//! Quantised (for affine weights): groups of 32 inputs, `a[k] ~ scale * quant[k]`, quants signed bytes, with the
//! sums that fold zero points and minimums into the product. Float (for float weights): `[tile][k][6 rows]`.

#![allow(unsafe_code, reason = "tiles are filled by several threads at once")]

use crate::memory::{Buffer, Plain};
use crate::packed::{GROUP, STEP};

/// Rows of a tile: with 32 outputs it fills the 32 registers of AVX-512 with accumulators.
pub const TILE: usize = 6;

/// One group of 32 inputs for the six rows of a tile.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Record {
    /// `[step][row][4 inputs]`.
    pub quants: [[[i8; STEP]; TILE]; GROUP / STEP],
    /// Scale of each row's group.
    pub scale: [f32; TILE],
    /// `scale * sum of quants`: of the whole group, its first and its second half.
    pub sums: [[f32; TILE]; 3],
    /// `-8 * sum of quants`, likewise: where an int4 sum with fixed zero point starts.
    pub start4: [[i32; TILE]; 3],
    /// `-128 * sum of quants`, likewise for int8.
    pub start8: [[i32; TILE]; 3],
}

// SAFETY: numbers only, 432 bytes without padding.
unsafe impl Plain for Record {}
const _: () = assert!(size_of::<Record>() == 432 && align_of::<Record>() == 4);

/// Index of a [`Record`]'s sums: the whole group, or a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All 32 inputs.
    Whole = 0,
    /// Inputs 0..16.
    First = 1,
    /// Inputs 16..32.
    Second = 2,
}

impl Record {
    /// A record of zeros.
    pub const ZERO: Self = Self {
        quants: [[[0; STEP]; TILE]; GROUP / STEP],
        scale: [0.0; TILE],
        sums: [[0.0; TILE]; 3],
        start4: [[0; TILE]; 3],
        start8: [[0; TILE]; 3],
    };

    /// Quantises one row's group into place. The result depends on `values` alone, never on other rows.
    #[inline(always)]
    pub(crate) fn put(&mut self, row: usize, values: &[f32; GROUP]) {
        let largest = largest_magnitude(values);
        let scale = largest / 127.0;
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        let mut quants = [0i32; GROUP];
        for (quant, value) in quants.iter_mut().zip(values) {
            *quant = round_to_byte(value * inverse);
        }
        for (step, four) in quants.chunks_exact(STEP).enumerate() {
            self.quants[step][row] = [four[0] as i8, four[1] as i8, four[2] as i8, four[3] as i8];
        }
        let first: i32 = quants[..GROUP / 2].iter().sum();
        let second: i32 = quants[GROUP / 2..].iter().sum();
        self.scale[row] = scale;
        for (part, sum) in [first + second, first, second].into_iter().enumerate() {
            self.sums[part][row] = scale * sum as f32;
            self.start4[part][row] = -8 * sum;
            self.start8[part][row] = -128 * sum;
        }
    }
}

/// Largest magnitude, or NaN if there is one. Compares bit patterns, whose order is that of the magnitudes with
/// NaN on top: damage in the input must reach the logits, not vanish in a comparison.
#[inline(always)]
fn largest_magnitude(values: &[f32; GROUP]) -> f32 {
    const MAGNITUDE: u32 = 0x7fff_ffff;
    let mut lanes = [0u32; 16];
    for (lane, (a, b)) in lanes.iter_mut().zip(values[..16].iter().zip(&values[16..])) {
        *lane = (a.to_bits() & MAGNITUDE).max(b.to_bits() & MAGNITUDE);
    }
    f32::from_bits(lanes.iter().fold(0, |most, &x| most.max(x)))
}

/// Rounds half to even; the value is within ±127.5 by construction. NaN gives some byte (its scale is NaN too).
#[inline(always)]
fn round_to_byte(value: f32) -> i32 {
    // Adding 1.5 * 2^23 leaves the rounded integer in the low mantissa bits: one add, one subtract, on every ISA.
    const MAGIC: f32 = 12_582_912.0;
    i32::from((value + MAGIC).to_bits() as i8)
}

/// Room for a batch's activations in both forms; each is filled only when a consumer needs it.
#[derive(Debug)]
pub struct Activations {
    /// `[tile][group]`.
    pub(crate) records: Buffer<Record>,
    /// `[tile][k][6 rows]`.
    pub(crate) floats: Buffer<f32>,
    max_rows: usize,
    max_cols: usize,
}

/// Which forms a consumer needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Quantised records, for affine weights.
    pub records: bool,
    /// Interleaved floats, for float weights.
    pub floats: bool,
}

impl Needs {
    /// What either of two consumers needs.
    pub fn and(self, other: Self) -> Self {
        Self { records: self.records || other.records, floats: self.floats || other.floats }
    }
}

impl Activations {
    /// Room for `rows` x `cols` in the needed forms.
    pub fn with_capacity(rows: usize, cols: usize, needs: Needs) -> Self {
        let tiles = rows.div_ceil(TILE);
        let records = if needs.records { tiles * cols.div_ceil(GROUP) } else { 0 };
        let floats = if needs.floats { tiles * cols * TILE } else { 0 };
        Self {
            records: Buffer::zeroed(records),
            floats: Buffer::zeroed(floats),
            max_rows: rows,
            max_cols: cols,
        }
    }

    /// Most rows and columns it holds.
    pub fn capacity(&self) -> (usize, usize) {
        (self.max_rows, self.max_cols)
    }

    /// The forms it holds.
    pub fn forms(&self) -> Needs {
        Needs { records: !self.records.is_empty(), floats: !self.floats.is_empty() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_quantised_to_its_largest_magnitude() {
        let mut values = [0.0; GROUP];
        for (k, value) in values.iter_mut().enumerate() {
            *value = (k as f32 - 20.0) * 0.37;
        }
        let mut record = Record::ZERO;
        record.put(2, &values);
        let scale = 20.0 * 0.37 / 127.0;
        assert!((record.scale[2] - scale).abs() < 1e-7);
        let mut sum = 0;
        for (k, value) in values.iter().enumerate() {
            let quant = record.quants[k / STEP][2][k % STEP];
            assert!((f32::from(quant) * scale - value).abs() <= scale * 0.5001);
            sum += i32::from(quant);
        }
        assert_eq!(record.start4[0][2], -8 * sum);
        assert_eq!(record.start8[1][2] + record.start8[2][2], record.start8[0][2]);
        assert_eq!(record.quants[0][1], [0; 4], "other rows stay untouched");
    }

    #[test]
    fn zeros_quantise_to_zero_and_nan_stays_visible() {
        let mut record = Record::ZERO;
        record.put(0, &[0.0; GROUP]);
        assert_eq!(record.scale[0], 0.0);
        let mut values = [1.0; GROUP];
        values[3] = f32::NAN;
        record.put(1, &values);
        assert!(record.scale[1].is_nan());
    }
}
