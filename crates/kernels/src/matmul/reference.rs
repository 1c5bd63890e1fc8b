//! The specification of every matmul kernel, in plain loops.
//!
//! Affine, per record `r` of 32 inputs with activation scale `a`:
//! ```text
//! x[k] = record's quant, or 256 * record's quant + low where quants are wide
//! y[n] = unit * sum over r, parts p of  scale[n][r][p] * a[r] * (sum of q[n][k] * x[k])      integers inside
//!                                     + min[n][r][p]   * a[r] * (sum of x[k])               with mins
//!                                     - zero * scale[n][r][p] * a[r] * (sum of x[k])        with a fixed zero point
//! ```
//! Float: `y[n] = sum over k of w[n][k] * x[k]`, k ascending.

#![allow(unsafe_code, reason = "shares the signature of the ISA kernels")]

use super::{PanelJob, PanelWeights, TileOut};
use crate::activations::{Part, Quants, Record, TILE};
use crate::packed::{
    AffineFormat, FloatFormat, GROUP, PANEL, STEP, read_float, record_min, record_quant, record_scale,
};

/// One panel for a range of tiles.
///
/// # Safety
/// As [`super::PanelFn`] says; needs no instruction set.
pub(crate) unsafe fn panel(job: &mut PanelJob<'_>) {
    for tile in job.tiles.clone() {
        let rows = TILE.min(job.rows - tile * TILE);
        let mut out = match job.weights {
            PanelWeights::Affine { format, unit, input, lows, records } => {
                let range = tile * records..(tile + 1) * records;
                let input = Input { records: &input[range.clone()], lows: lows.map(|lows| &lows[range]) };
                affine_tile(job.panel, &input, rows, format, unit)
            }
            PanelWeights::Float { format, input, cols } => {
                float_tile(job.panel, &input[tile * cols * TILE..(tile + 1) * cols * TILE], rows, format)
            }
        };
        // SAFETY: passed on from this function's contract.
        unsafe { job.sink.put(tile * TILE, rows, &mut out) };
    }
}

/// A tile's activations.
struct Input<'a> {
    records: &'a [Record],
    lows: Option<&'a [Quants]>,
}

impl Input<'_> {
    fn quant(&self, record: usize, row: usize, k: usize) -> i32 {
        let quant = i32::from(self.records[record].quants[k / STEP][row][k % STEP]);
        self.lows.map_or(quant, |lows| 256 * quant + i32::from(lows[record][k / STEP][row][k % STEP]))
    }
}

fn affine_tile(panel: &[u8], x: &Input<'_>, rows: usize, format: AffineFormat, unit: f32) -> TileOut {
    let mut out = [[0.0; PANEL]; TILE];
    for (index, weights) in panel.chunks_exact(format.record_bytes()).enumerate() {
        for slot in 0..PANEL {
            let column = Column::read(weights, slot, format);
            for (row, values) in out[..rows].iter_mut().enumerate() {
                values[slot] += column.times(x, index, row);
            }
        }
    }
    out.iter_mut().flatten().for_each(|value| *value *= unit);
    out
}

/// One output's weights in a record, its scales and minimums read once for all rows.
struct Column<'a> {
    weights: &'a [u8],
    slot: usize,
    format: AffineFormat,
    /// Of each part.
    scales: [f32; 2],
    /// Of each part; zeros without mins.
    mins: [f32; 2],
}

impl<'a> Column<'a> {
    fn read(weights: &'a [u8], slot: usize, format: AffineFormat) -> Self {
        let mut column = Self { weights, slot, format, scales: [0.0; 2], mins: [0.0; 2] };
        for part in 0..format.parts() {
            column.scales[part] = record_scale(weights, slot, part, format);
            if format.mins {
                column.mins[part] = record_min(weights, slot, part, format);
            }
        }
        column
    }

    /// The record's contribution to this output of a row.
    fn times(&self, x: &Input<'_>, index: usize, row: usize) -> f32 {
        let (record, format) = (&x.records[index], self.format);
        let parts: &[Part] = if format.halves { &[Part::First, Part::Second] } else { &[Part::Whole] };
        let len = GROUP / parts.len();
        let mut sum = 0.0;
        for (part_index, &part) in parts.iter().enumerate() {
            let mut dot = if format.mins { 0 } else { record.start(format.bits, part as usize, row) };
            for k in part_index * len..(part_index + 1) * len {
                dot +=
                    i32::from(record_quant(self.weights, self.slot, k, format.bits)) * x.quant(index, row, k);
            }
            sum += dot as f32 * record.scale[row] * self.scales[part_index];
            if format.mins {
                sum += self.mins[part_index] * record.sums[part as usize][row];
            }
        }
        sum
    }
}

fn float_tile(panel: &[u8], input: &[f32], rows: usize, format: FloatFormat) -> TileOut {
    let mut out = [[0.0; PANEL]; TILE];
    for (k, x) in input.chunks_exact(TILE).enumerate() {
        for (row, values) in out[..rows].iter_mut().enumerate() {
            for (slot, value) in values.iter_mut().enumerate() {
                *value += read_float(panel, k * PANEL + slot, format) * x[row];
            }
        }
    }
    out
}
