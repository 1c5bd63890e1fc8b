//! Plain Rust in fixed-size arrays, which the compiler vectorises for whatever CPU it builds for.
//!
//! ```text
//! affine, per record of 32 inputs and plane of nibbles (int4: one; int8: low + 16 * high, two):
//!   unpack once for all rows of the tile:  w[32 inputs][32 outputs] as i16, factors as f32
//!   per row and half of 16 inputs:  half[output] = sum over k of w[k][output] * x[k]     i16
//!                                   sum[output] += half, times 1 or 16                   i32
//!             float[output] += sum * a * scale,  float[output] += min * asum
//! float, per 32 inputs:  unpack once to f32, then float[output] += w[k][output] * x[k], k ascending
//! ```
//! A half adds at most 16 products of a nibble and a byte (16 x 15 x 128 = 30,720): 16 bits hold it, so that a
//! 128-bit register does eight products at once, and the integer sums are exactly those of the reference. Wide
//! activations go through the same loop twice, high bytes counting 256.
//!
//! Measured 2026-11-15 as compiled for plain x86-64 (128-bit registers), on one thread of an Ice Lake server at
//! 3.5 GHz, busy with other work, 576 x 576 int4: 23 Gop/s from 32 rows on, 10 at one row, where unpacking is most
//! of the work; the reference does 1. Eight products an instruction on three ports would allow 84.

#![allow(unsafe_code, reason = "shares the signature of the ISA kernels")]
#![allow(
    clippy::needless_range_loop,
    reason = "indices into fixed-size arrays: no checks, no iterators to see through"
)]

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::{PanelJob, PanelWeights};
use crate::activations::{Quants, Record, TILE};
use crate::packed::{AffineFormat, Bits, FloatFormat, GROUP, PANEL, STEP};

/// Bytes of one step of a panel, a byte per quant, or of two steps of nibbles.
const STEP_BYTES: usize = PANEL * STEP;
/// Inputs whose products fit a 16-bit sum.
const HALF: usize = GROUP / 2;

/// One plane of a record: `[input][output]`.
type Plane = [[i16; PANEL]; GROUP];

/// One panel for a range of tiles.
///
/// # Safety
/// As [`super::PanelFn`] says; needs no instruction set.
pub(crate) unsafe fn panel(job: &mut PanelJob<'_>) {
    for tile in job.tiles.clone() {
        let rows = TILE.min(job.rows - tile * TILE);
        let mut out = [[0.0; PANEL]; TILE];
        match job.weights {
            PanelWeights::Affine { format, unit, input, lows, records } => {
                let range = tile * records..(tile + 1) * records;
                let x = Input { lows: lows.map(|lows| &lows[range.clone()]), records: &input[range] };
                affine_tile(job.panel, &x, format, &mut out[..rows]);
                out.as_flattened_mut().iter_mut().for_each(|value| *value *= unit);
            }
            PanelWeights::Float { format, input, cols } => {
                let x = &input[tile * cols * TILE..(tile + 1) * cols * TILE];
                float_tile(job.panel, x, format, &mut out[..rows]);
            }
        }
        // SAFETY: passed on from this function's contract.
        unsafe { job.sink.put(tile * TILE, rows, &mut out) };
    }
}

/// A record unpacked: what all rows of a tile share.
struct Unpacked {
    /// Low nibbles, and high ones where the format has bytes.
    planes: [Plane; 2],
    /// Scales, then mins where the format has them: `[factor][part][output]`.
    factors: [[f32; PANEL]; 4],
}

/// A tile's activations.
struct Input<'a> {
    records: &'a [Record],
    /// Low bytes of wide ones.
    lows: Option<&'a [Quants]>,
}

fn affine_tile(panel: &[u8], input: &Input<'_>, format: AffineFormat, out: &mut [[f32; PANEL]]) {
    let mut weights = Unpacked { planes: [[[0; PANEL]; GROUP]; 2], factors: [[0.0; PANEL]; 4] };
    for (index, record) in panel.chunks_exact(format.record_bytes()).enumerate() {
        weights.unpack(record, format);
        let x = Group { record: &input.records[index], lows: input.lows.map(|lows| &lows[index]) };
        for (row, values) in out.iter_mut().enumerate() {
            if format.halves {
                add_record::<2>(&weights, &x, row, format, values);
            } else {
                add_record::<1>(&weights, &x, row, format, values);
            }
        }
    }
}

impl Unpacked {
    fn unpack(&mut self, record: &[u8], format: AffineFormat) {
        let (quants, factors) = record.split_at(format.quant_bytes());
        let bundles = quants.as_chunks::<STEP_BYTES>().0.iter();
        let [low, high] = &mut self.planes;
        let (low, high) = (low.as_chunks_mut::<STEP>().0, high.as_chunks_mut::<STEP>().0);
        match format.bits {
            Bits::Four => {
                for (bytes, [even, odd]) in bundles.zip(low.as_chunks_mut::<2>().0) {
                    split_nibbles(bytes, even, odd);
                }
            }
            Bits::Eight => {
                for ((bytes, low), high) in bundles.zip(low).zip(high) {
                    split_nibbles(bytes, low, high);
                }
            }
        }
        for (halves, floats) in factors.as_chunks::<{ PANEL * 2 }>().0.iter().zip(&mut self.factors) {
            halves_to_floats(halves, floats);
        }
    }
}

/// From `[output][4 inputs]` to `[4 inputs][output]`, an output's four bytes as one word.
fn split_nibbles(bytes: &[u8; STEP_BYTES], low: &mut [[i16; PANEL]; STEP], high: &mut [[i16; PANEL]; STEP]) {
    let words = bytes.as_chunks::<STEP>().0;
    for k in 0..STEP {
        for slot in 0..PANEL {
            let byte = u32::from_le_bytes(words[slot]) >> (8 * k);
            low[k][slot] = (byte & 15) as i16;
            high[k][slot] = (byte >> 4 & 15) as i16;
        }
    }
}

/// One group of a tile's activations.
struct Group<'a> {
    record: &'a Record,
    lows: Option<&'a Quants>,
}

/// One row's bytes of a group.
fn row_bytes(bytes: &Quants, row: usize) -> [i16; GROUP] {
    let mut inputs = [0; GROUP];
    for (k, input) in inputs.iter_mut().enumerate() {
        *input = i16::from(bytes[k / STEP][row][k % STEP]);
    }
    inputs
}

/// One row's record: its integer sums, scaled, and its minimums.
#[inline]
fn add_record<const PARTS: usize>(
    weights: &Unpacked,
    x: &Group<'_>,
    row: usize,
    format: AffineFormat,
    values: &mut [f32; PANEL],
) {
    let sums = dot::<PARTS>(weights, x, row, format);
    let scale = x.record.scale[row];
    for part in 0..PARTS {
        let scales = &weights.factors[part];
        for slot in 0..PANEL {
            values[slot] += sums[part][slot] as f32 * scale * scales[slot];
        }
        if format.mins {
            let (mins, sum) = (&weights.factors[PARTS + part], x.record.sums[sum_index::<PARTS>(part)][row]);
            for slot in 0..PANEL {
                values[slot] += mins[slot] * sum;
            }
        }
    }
}

/// Which of a record's sums belongs to `part`.
const fn sum_index<const PARTS: usize>(part: usize) -> usize {
    if PARTS == 1 { 0 } else { part + 1 }
}

/// One row's integer dot products with a record, from where they start: `[part][output]`.
#[inline]
fn dot<const PARTS: usize>(
    weights: &Unpacked,
    x: &Group<'_>,
    row: usize,
    format: AffineFormat,
) -> [[i32; PANEL]; PARTS] {
    let mut sums = [[0; PANEL]; PARTS];
    if !format.mins {
        for (part, sums) in sums.iter_mut().enumerate() {
            sums.fill(x.record.start(format.bits, sum_index::<PARTS>(part), row));
        }
    }
    let planes = if format.bits == Bits::Four { 1 } else { 2 };
    let high = if x.lows.is_some() { 8 } else { 0 };
    for (bytes, shift) in [(Some(&x.record.quants), high), (x.lows, 0)] {
        let Some(bytes) = bytes else { continue };
        let x = row_bytes(bytes, row);
        for (plane, weights) in weights.planes[..planes].iter().enumerate() {
            add_plane(weights, &x, shift + 4 * plane, &mut sums);
        }
    }
    sums
}

/// Adds the dot products of one plane, shifted left, to `sums`: its two halves into two parts, or into one.
#[inline]
fn add_plane<const PARTS: usize>(
    plane: &Plane,
    x: &[i16; GROUP],
    shift: usize,
    sums: &mut [[i32; PANEL]; PARTS],
) {
    let (weights, x) = (plane.as_chunks::<HALF>().0, x.as_chunks::<HALF>().0);
    for half in 0..2 {
        let dots = half_dot(&weights[half], &x[half]);
        let sums = &mut sums[half % PARTS];
        for slot in 0..PANEL {
            sums[slot] += i32::from(dots[slot]) << shift;
        }
    }
}

#[inline]
fn half_dot(weights: &[[i16; PANEL]; HALF], x: &[i16; HALF]) -> [i16; PANEL] {
    let mut sums = [0i16; PANEL];
    for (slot, sum) in sums.iter_mut().enumerate() {
        for k in 0..HALF {
            // Nothing wraps (see above); saying so keeps overflow checks out of the loop in every profile.
            *sum = sum.wrapping_add(weights[k][slot].wrapping_mul(x[k]));
        }
    }
    sums
}

/// Inputs of a float panel that are unpacked at once.
const CHUNK: usize = 32;

fn float_tile(panel: &[u8], input: &[f32], format: FloatFormat, out: &mut [[f32; PANEL]]) {
    let mut weights = [[0f32; PANEL]; CHUNK];
    let row_bytes = PANEL * format.bytes();
    let chunks = panel.chunks(CHUNK * row_bytes).zip(input.chunks(CHUNK * TILE));
    for (bytes, x) in chunks {
        for (bytes, weights) in bytes.chunks_exact(row_bytes).zip(&mut weights) {
            unpack_floats(bytes, format, weights);
        }
        let x = x.as_chunks::<TILE>().0;
        for (row, values) in out.iter_mut().enumerate() {
            for (weights, x) in weights.iter().zip(x) {
                for slot in 0..PANEL {
                    values[slot] += weights[slot] * x[row];
                }
            }
        }
    }
}

fn unpack_floats(bytes: &[u8], format: FloatFormat, out: &mut [f32; PANEL]) {
    match format {
        FloatFormat::F32 => {
            for (out, &bytes) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *out = f32::from_le_bytes(bytes);
            }
        }
        FloatFormat::F16 => halves_to_floats(bytes, out),
        FloatFormat::Bf16 => {
            for (out, &bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *out = bf16::from_le_bytes(bytes).to_f32();
            }
        }
    }
}

/// By the CPU's own instruction where it has one.
fn halves_to_floats(bytes: &[u8], out: &mut [f32; PANEL]) {
    let mut halves = [f16::ZERO; PANEL];
    for (half, &bytes) in halves.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *half = f16::from_le_bytes(bytes);
    }
    halves.convert_to_f32_slice(out);
}
