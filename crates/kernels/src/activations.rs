//! Activations as the matmul kernels read them: tiles of six rows, interleaved, so that one broadcast stream
//! serves a tile.
//!
//! Quantised (for affine weights): groups of 32 inputs, `a[k] ~ scale * quant[k]`, with the sums that fold zero points
//! and minimums into the product. A narrow quant is one signed byte; a wide one is `256 * high + low`, two signed
//! bytes that go through the same integer units in two passes, for products whose rounding would show in the
//! result. A mixed row has low bytes only in groups with large values, where one byte rounds most away; the second pass
//! is skipped where no row of a tile has any. Float (for float weights): `[tile][k][6 rows]`.

#![allow(unsafe_code, reason = "tiles are filled by several threads at once")]

use crate::elementwise::sum_of_squares;
use crate::memory::{Buffer, Plain};
use crate::packed::{Bits, GROUP, STEP};

/// Rows of a tile: with 32 outputs it fills the 32 registers of AVX-512 with accumulators.
pub const TILE: usize = 6;

/// A group's bytes: `[step][row][4 inputs]`.
pub type Quants = [[[i8; STEP]; TILE]; GROUP / STEP];

/// One group of 32 inputs for the six rows of a tile.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Record {
    /// The quants, or the high bytes of wide ones.
    pub quants: Quants,
    /// Scale of each row's group.
    pub scale: [f32; TILE],
    /// `scale * sum of quants`: of the whole group, its first and its second half.
    pub sums: [[f32; TILE]; 3],
    /// `sum of quants`, likewise: times the zero point, what an integer sum without mins must lose.
    pub counts: [[i32; TILE]; 3],
    /// `INTEGER * scale`, exactly: see [`INTEGER`].
    pub offset: [f32; TILE],
}

// SAFETY: numbers only, 384 bytes without padding.
unsafe impl Plain for Record {}
// SAFETY: bytes only.
unsafe impl Plain for Quants {}
const _: () = assert!(size_of::<Record>() == 384 && align_of::<Record>() == 4);

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
        counts: [[0; TILE]; 3],
        offset: [0.0; TILE],
    };

    /// Quantises one row's group into place, into single bytes. The result depends on `values` alone.
    #[inline(always)]
    pub(crate) fn put(&mut self, row: usize, values: &[f32; GROUP]) {
        let quants = quantise(values, NARROW);
        put_bytes(&mut self.quants, row, |k| quants.ints[k] as i8);
        self.put_scale(row, quants.scale, quants.sum());
    }

    /// The same into two bytes: high ones here, low ones into `lows`, all zero where the largest magnitude is below
    /// `fine_from`.
    #[inline(always)]
    pub(crate) fn put_wide(&mut self, lows: &mut Quants, row: usize, values: &[f32; GROUP], fine_from: f32) {
        let quants = quantise_wide(values, fine_from);
        put_bytes(&mut self.quants, row, |k| high(quants.ints[k]) as i8);
        put_bytes(lows, row, |k| (quants.ints[k] - 256 * high(quants.ints[k])) as i8);
        self.put_scale(row, quants.scale, quants.sum());
    }

    /// Stores a row's scale and the sum of its quants.
    #[inline(always)]
    pub(crate) fn put_scale(&mut self, row: usize, scale: f32, sum: i32) {
        let scale = trimmed(scale);
        self.scale[row] = scale;
        self.offset[row] = INTEGER * scale;
        self.put_sum(Part::Whole, row, scale, sum);
    }

    #[inline(always)]
    pub(crate) fn put_sum(&mut self, part: Part, row: usize, scale: f32, sum: i32) {
        self.sums[part as usize][row] = scale * sum as f32;
        self.counts[part as usize][row] = sum;
    }

    /// Where an integer sum of weights with a fixed zero point starts, such that it ends as if that were zero.
    #[inline(always)]
    pub(crate) fn start(&self, bits: Bits, part: usize, row: usize) -> i32 {
        self.counts[part][row].wrapping_mul(-bits.zero_point())
    }

    /// Stores the sums of a row's halves, taken back from its quants.
    #[inline(always)]
    pub(crate) fn put_halves(&mut self, lows: Option<&Quants>, row: usize) {
        let half = GROUP / STEP / 2;
        let add = |quants: &Quants, steps: std::ops::Range<usize>| -> i32 {
            quants[steps].iter().flat_map(|step| step[row]).map(i32::from).sum()
        };
        for (part, steps) in [(Part::First, 0..half), (Part::Second, half..2 * half)] {
            let sum = add(&self.quants, steps.clone());
            let sum = lows.map_or(sum, |lows| 256 * sum + add(lows, steps));
            self.put_sum(part, row, self.scale[row], sum);
        }
    }
}

/// An integer sum that starts from this float's bits is, read as a float, `INTEGER + sum` (up to 2^22 either way): it
/// becomes a number without a conversion. `(INTEGER + sum) * scale - INTEGER * scale` is then `sum * scale`, rounded
/// once, in one multiply-add.
pub(crate) const INTEGER: f32 = 12_582_912.0;

/// A scale whose product with [`INTEGER`], three times a power of two, is exact: two bits shorter.
#[inline(always)]
fn trimmed(scale: f32) -> f32 {
    f32::from_bits(scale.to_bits() & !3)
}

/// Largest quant of a single byte.
pub(crate) const NARROW: f32 = 127.0;
/// Largest wide quant: its high byte is 127 and its low byte 0.
pub(crate) const WIDE: f32 = 127.0 * 256.0;

/// A group of a mixed row has low bytes from this many times the row's root mean square on. What one byte rounds away
/// grows with the largest value of its group, so groups above carry most of the error. Values that
/// are normally distributed hardly ever reach it: outliers do, and so the second pass is rare.
const FINE_FROM: f32 = 4.0;

struct Quantised {
    ints: [i32; GROUP],
    scale: f32,
}

impl Quantised {
    #[inline(always)]
    fn sum(&self) -> i32 {
        self.ints.iter().sum()
    }
}

#[inline(always)]
fn quantise(values: &[f32; GROUP], top: f32) -> Quantised {
    let largest = largest_magnitude(values);
    let inverse = if largest > 0.0 { top / largest } else { 0.0 };
    // Not `values.map(..)`: it stays a call under `target_feature`, and the loop then does not vectorise.
    let mut ints = [0; GROUP];
    for (int, value) in ints.iter_mut().zip(values) {
        *int = round(value * inverse);
    }
    Quantised { ints, scale: largest / top }
}

/// Quants of two bytes, or of one in the place of the high one.
#[inline(always)]
fn quantise_wide(values: &[f32; GROUP], fine_from: f32) -> Quantised {
    if largest_magnitude(values) < fine_from {
        let mut coarse = quantise(values, NARROW);
        for int in &mut coarse.ints {
            *int *= 256;
        }
        return Quantised { ints: coarse.ints, scale: coarse.scale / 256.0 };
    }
    quantise(values, WIDE)
}

/// The high byte of a wide quant, such that the low one is in -128..128.
#[inline(always)]
fn high(quant: i32) -> i32 {
    (quant + 128) >> 8
}

#[inline(always)]
fn put_bytes(quants: &mut Quants, row: usize, byte: impl Fn(usize) -> i8) {
    for (step, rows) in quants.iter_mut().enumerate() {
        let k = step * STEP;
        rows[row] = [byte(k), byte(k + 1), byte(k + 2), byte(k + 3)];
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

/// Rounds half to even; the value is within 16 bits by construction. NaN gives some number (its scale is NaN too).
#[inline(always)]
fn round(value: f32) -> i32 {
    // Adding 1.5 * 2^23, which `INTEGER` is, leaves the rounded integer in the low mantissa bits: one add, one cast, on every ISA.
    i32::from((value + INTEGER).to_bits() as i16)
}

/// Room for a batch's activations in both forms; each is filled only when a consumer needs it.
#[derive(Debug)]
pub struct Activations {
    /// `[tile][group]`.
    pub(crate) records: Buffer<Record>,
    /// `[tile][group]`: low bytes of wide quants.
    pub(crate) lows: Buffer<Quants>,
    /// How the records were last filled.
    pub(crate) width: Width,
    /// Whether records carry the sums of their halves.
    pub(crate) halves: bool,
    /// `[tile][k][6 rows]`.
    pub(crate) floats: Buffer<f32>,
    max_rows: usize,
    max_cols: usize,
}

/// Bytes of a quantised activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Width {
    /// One: an error of 1/254 of the group's largest value.
    #[default]
    Narrow,
    /// Two for groups with large values, one for the rest.
    Mixed,
    /// Two: an error of 1/65,000, for twice the integer work.
    Wide,
}

impl Width {
    /// Whether some quants have a low byte.
    pub fn has_lows(self) -> bool {
        self != Self::Narrow
    }

    /// The magnitude from which a group of this row has low bytes. NaN, which no magnitude is below, in a damaged row.
    #[inline(always)]
    pub(crate) fn fine_from(self, row: &[f32]) -> f32 {
        match self {
            Self::Narrow => f32::INFINITY,
            Self::Mixed => FINE_FROM * (sum_of_squares(row) / row.len() as f32).sqrt(),
            Self::Wide => 0.0,
        }
    }
}

/// Which forms a consumer needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent wishes, joined one by one in `and`")]
pub struct Needs {
    /// Quantised records, for affine weights.
    pub records: bool,
    /// Room for two-byte quants as well.
    pub wide: bool,
    /// Sums of half groups as well, for weights in groups of 16.
    pub halves: bool,
    /// Interleaved floats, for float weights.
    pub floats: bool,
}

impl Needs {
    /// What either of two consumers needs.
    pub fn and(self, other: Self) -> Self {
        Self {
            records: self.records || other.records,
            wide: self.wide || other.wide,
            halves: self.halves || other.halves,
            floats: self.floats || other.floats,
        }
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
            lows: Buffer::zeroed(if needs.wide { records } else { 0 }),
            width: Width::Narrow,
            halves: needs.halves,
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
        Needs {
            records: !self.records.is_empty(),
            wide: !self.lows.is_empty(),
            halves: self.halves,
            floats: !self.floats.is_empty(),
        }
    }

    /// The low bytes, where the records were filled with wide quants.
    pub(crate) fn filled_lows(&self) -> Option<&[Quants]> {
        self.width.has_lows().then_some(&self.lows[..])
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
        record.put_halves(None, 2);
        let scale = 20.0 * 0.37 / 127.0;
        assert!((record.scale[2] - scale).abs() < 1e-7);
        let mut sum = 0;
        for (k, value) in values.iter().enumerate() {
            let quant = record.quants[k / STEP][2][k % STEP];
            assert!((f32::from(quant) * scale - value).abs() <= scale * 0.5001);
            sum += i32::from(quant);
        }
        assert_eq!(record.counts[0][2], sum);
        assert_eq!(record.counts[1][2] + record.counts[2][2], sum);
        assert_eq!(f64::from(record.offset[2]), f64::from(INTEGER) * f64::from(record.scale[2]));
        assert_eq!(record.quants[0][1], [0; 4], "other rows stay untouched");
    }

    #[test]
    fn a_wide_group_splits_into_two_bytes_that_add_up() {
        let mut values = [0.0; GROUP];
        values.iter_mut().enumerate().for_each(|(k, value)| *value = (k as f32 * 1.7).sin() * 3.0);
        let (mut record, mut lows) = (Record::ZERO, [[[0; STEP]; TILE]; GROUP / STEP]);
        record.put_wide(&mut lows, 4, &values, 2.9);
        for (k, value) in values.iter().enumerate() {
            let (high, low) = (record.quants[k / STEP][4][k % STEP], lows[k / STEP][4][k % STEP]);
            let quant = 256 * i32::from(high) + i32::from(low);
            assert!((quant as f32 * record.scale[4] - value).abs() <= record.scale[4] * 0.51);
        }
        assert!(record.scale[4] < 3.0 / 30_000.0);
    }

    #[test]
    fn a_wide_group_of_small_values_is_its_narrow_self() {
        let mut values = [0.0; GROUP];
        values.iter_mut().enumerate().for_each(|(k, value)| *value = (k as f32 * 1.7).sin() * 3.0);
        let (mut wide, mut lows) = (Record::ZERO, [[[1; STEP]; TILE]; GROUP / STEP]);
        let mut narrow = Record::ZERO;
        wide.put_wide(&mut lows, 4, &values, 3.1);
        narrow.put(4, &values);
        assert_eq!(wide.quants, narrow.quants);
        assert!(lows.iter().all(|step| step[4] == [0; STEP]));
        assert_eq!(wide.scale[4] * 256.0, narrow.scale[4]);
        assert_eq!(wide.sums[0][4], narrow.sums[0][4]);
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
