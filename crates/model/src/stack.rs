//! Several tensors as the rows of one packed matrix, and the choice of its packed form.
//!
//! Projections that read the same input are packed together: queries, keys and values one under the other; gate and up
//! alternating in panels of 16 + 16, so that the product's last step can multiply them in registers.

use ropeway_kernels::packed::{
    AffineFormat, AffineMatrix, AffineRow, Bits, FloatFormat, FloatMatrix, GROUP, Matrix,
};
use ropeway_kernels::pool::Pool;
use ropeway_weights::{self as weights, FloatType, Form, Tensor};

use crate::load::{Precision, Quantize};

/// Outputs of gate, and of up, in one panel.
const GATE_RUN: usize = 16;

/// Rows of one matrix to be, out of one or more tensors with equal columns.
pub(crate) struct Stack {
    tensors: Vec<Tensor>,
    order: Order,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// One tensor under the other.
    Stacked,
    /// 16 rows of the first, 16 of the second, and so on; zeros where they end.
    Gated,
}

impl Stack {
    /// One tensor under the other.
    pub(crate) fn stacked(tensors: Vec<Tensor>) -> Self {
        Self { tensors, order: Order::Stacked }
    }

    /// Gate and up, alternating.
    pub(crate) fn gated(gate: Tensor, up: Tensor) -> Self {
        Self { tensors: vec![gate, up], order: Order::Gated }
    }

    fn rows(&self) -> usize {
        match self.order {
            Order::Stacked => self.tensors.iter().map(Tensor::rows).sum(),
            Order::Gated => self.tensors[0].rows().div_ceil(GATE_RUN) * GATE_RUN * 2,
        }
    }

    fn cols(&self) -> usize {
        self.tensors[0].cols()
    }

    /// The tensor and its row that become packed row `row`; `None` is a row of zeros.
    fn locate(&self, row: usize) -> Option<(&Tensor, usize)> {
        match self.order {
            Order::Stacked => {
                let mut row = row;
                for tensor in &self.tensors {
                    if row < tensor.rows() {
                        return Some((tensor, row));
                    }
                    row -= tensor.rows();
                }
                None
            }
            Order::Gated => {
                let (tensor, at) = gated_place(row);
                (at < self.tensors[tensor].rows()).then(|| (&self.tensors[tensor], at))
            }
        }
    }

    /// Packs in the form the tensors have, or the options ask for.
    pub(crate) fn pack(&self, pool: &mut Pool, precision: Precision, quantize: Option<Quantize>) -> Matrix {
        if precision == Precision::F32 {
            return Matrix::Float(self.pack_float(pool, FloatFormat::F32));
        }
        let forms: Vec<Form> = self.tensors.iter().map(Tensor::form).collect();
        if let Some(format) = joined_affine(&forms) {
            return Matrix::Affine(self.pack_affine(pool, format));
        }
        match quantize {
            Some(quantize) => Matrix::Affine(self.quantise(pool, quantize)),
            None => Matrix::Float(self.pack_float(pool, joined_float(&forms))),
        }
    }

    fn pack_float(&self, pool: &mut Pool, format: FloatFormat) -> FloatMatrix {
        FloatMatrix::pack(pool, (self.rows(), self.cols()), format, &|row, out| match self.locate(row) {
            Some((tensor, row)) => tensor.read_f32(row, out),
            None => out.fill(0.0),
        })
    }

    fn pack_affine(&self, pool: &mut Pool, format: AffineFormat) -> AffineMatrix {
        let shape = (self.rows(), self.cols());
        let largest = largest_factor(pool, shape.0, &|row| {
            let mut scratch = empty_row(shape.1, format);
            self.read_affine(row, format, &mut scratch);
            scratch.scales.iter().chain(&scratch.mins).fold(0.0, |most: f32, x| most.max(x.abs()))
        });
        AffineMatrix::pack(pool, shape, format, largest, &|row, out| self.read_affine(row, format, out))
    }

    /// One row in the tensor's own form, widened to `format`.
    fn read_affine(&self, row: usize, format: AffineFormat, out: &mut AffineRow) {
        let Some((tensor, row)) = self.locate(row) else { return };
        let Form::Affine(form) = tensor.form() else { unreachable!("only affine tensors are joined") };
        let groups = tensor.cols() / form.group.len();
        let affine = weights::AffineRow {
            quants: &mut out.quants[..tensor.cols()],
            scales: &mut out.scales[..groups],
            mins: &mut out.mins[..groups],
        };
        tensor.read_affine(row, affine);
        widen(out, format_of(form), format, groups);
    }

    fn quantise(&self, pool: &mut Pool, quantize: Quantize) -> AffineMatrix {
        let shape = (self.rows(), self.cols());
        let read = |row: usize| {
            let mut values = vec![0.0; shape.1];
            if let Some((tensor, row)) = self.locate(row) {
                tensor.read_f32(row, &mut values);
            }
            values
        };
        let largest = largest_factor(pool, shape.0, &|row| {
            read(row).iter().fold(0.0, |most: f32, x| most.max(x.abs()))
        });
        AffineMatrix::pack(pool, shape, quantize.format(), largest, &|row, out| {
            for (group, values) in read(row).chunks(GROUP).enumerate() {
                let factors = quantize.group(values, &mut out.quants[group * GROUP..]);
                (out.scales[group], out.mins[group]) = (factors.scale, factors.min);
            }
        })
    }
}

/// Packed row to (0 gate or 1 up, row of that tensor).
fn gated_place(row: usize) -> (usize, usize) {
    let (panel, slot) = (row / (2 * GATE_RUN), row % (2 * GATE_RUN));
    (slot / GATE_RUN, panel * GATE_RUN + slot % GATE_RUN)
}

/// A gate's and an up's bias in the order of [`Stack::gated`].
pub(crate) fn gated_bias(gate: &[f32], up: &[f32]) -> Vec<f32> {
    let rows = gate.len().div_ceil(GATE_RUN) * GATE_RUN * 2;
    let value = |row| {
        let (tensor, at) = gated_place(row);
        [gate, up][tensor].get(at).copied().unwrap_or(0.0)
    };
    (0..rows).map(value).collect()
}

fn empty_row(cols: usize, format: AffineFormat) -> AffineRow {
    let groups = cols.div_ceil(GROUP) * format.parts();
    AffineRow {
        quants: vec![0; cols.next_multiple_of(GROUP)],
        scales: vec![0.0; groups],
        mins: vec![0.0; groups],
    }
}

/// The largest scale or minimum of a matrix: it decides the unit all are stored in.
fn largest_factor(pool: &mut Pool, rows: usize, of_row: &(dyn Fn(usize) -> f32 + Sync)) -> f32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    // Non-negative floats order like their bit patterns.
    let most = AtomicU32::new(0);
    pool.for_each(rows, 64, &|range| {
        let part = range.map(of_row).fold(0.0, f32::max);
        most.fetch_max(part.to_bits(), Ordering::Relaxed);
    });
    f32::from_bits(most.into_inner())
}

fn format_of(form: weights::AffineForm) -> AffineFormat {
    AffineFormat {
        bits: match form.bits {
            weights::Bits::Four => Bits::Four,
            weights::Bits::Eight => Bits::Eight,
        },
        halves: form.group == weights::Group::Sixteen,
        mins: form.zero == weights::Zero::Mins,
    }
}

/// The format that holds all forms exactly, if all are affine.
fn joined_affine(forms: &[Form]) -> Option<AffineFormat> {
    let mut joined: Option<AffineFormat> = None;
    for form in forms {
        let Form::Affine(form) = form else { return None };
        let format = format_of(*form);
        joined = Some(joined.map_or(format, |other| other.join(format)));
    }
    joined
}

/// The float format that holds all forms exactly.
fn joined_float(forms: &[Form]) -> FloatFormat {
    if forms.iter().all(|form| *form == Form::Float(FloatType::F16)) {
        FloatFormat::F16
    } else if forms.iter().all(|form| *form == Form::Float(FloatType::Bf16)) {
        FloatFormat::Bf16
    } else {
        FloatFormat::F32
    }
}

/// Brings a row of `groups` groups from its own format to a wider one, exactly.
fn widen(row: &mut AffineRow, from: AffineFormat, to: AffineFormat, groups: usize) {
    if to.mins && !from.mins {
        for (min, scale) in row.mins.iter_mut().zip(&row.scales) {
            *min = -from.zero_point() * scale;
        }
    }
    if !to.mins && to.bits != from.bits {
        let shift = (to.zero_point() - from.zero_point()) as u8;
        row.quants.iter_mut().for_each(|quant| *quant += shift);
    }
    if to.halves && !from.halves {
        for group in (0..groups).rev() {
            let (scale, min) = (row.scales[group], row.mins[group]);
            row.scales[2 * group..2 * group + 2].fill(scale);
            row.mins[2 * group..2 * group + 2].fill(min);
        }
    }
}

impl Quantize {
    fn format(self) -> AffineFormat {
        match self {
            Self::Q8 => AffineFormat { bits: Bits::Eight, halves: false, mins: false },
            Self::Q4 => AffineFormat { bits: Bits::Four, halves: false, mins: true },
        }
    }

    /// Quantises a group of up to 32 values: `value = scale * quant + min`.
    pub fn group(self, values: &[f32], quants: &mut [u8]) -> GroupFactors {
        match self {
            Self::Q8 => {
                let most = values.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
                let inverse = if most > 0.0 { 127.0 / most } else { 0.0 };
                for (quant, value) in quants.iter_mut().zip(values) {
                    *quant = (value * inverse).round_ties_even() as i32 as u8 ^ 0x80;
                }
                let scale = most / 127.0;
                GroupFactors { scale, min: -Bits::Eight.zero_point() as f32 * scale }
            }
            Self::Q4 => {
                let least = values.iter().copied().fold(f32::INFINITY, f32::min);
                let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let scale = (most - least) / 15.0;
                let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
                for (quant, value) in quants.iter_mut().zip(values) {
                    *quant = ((value - least) * inverse).round_ties_even().clamp(0.0, 15.0) as u8;
                }
                GroupFactors { scale, min: least }
            }
        }
    }
}

/// What the quants of a group stand for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupFactors {
    /// The step from one quant to the next.
    pub scale: f32,
    /// What a quant of zero stands for.
    pub min: f32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(quants: Vec<u8>, scales: Vec<f32>, mins: Vec<f32>) -> AffineRow {
        AffineRow { quants, scales, mins }
    }

    fn value(row: &AffineRow, format: AffineFormat, k: usize) -> f32 {
        let group = k * format.parts() / GROUP;
        let quant = f32::from(row.quants[k]);
        if format.mins {
            row.scales[group] * quant + row.mins[group]
        } else {
            row.scales[group] * (quant - format.zero_point())
        }
    }

    #[test]
    #[allow(clippy::float_cmp, reason = "widening is exact")]
    fn widening_keeps_every_weight() {
        let narrow = AffineFormat { bits: Bits::Four, halves: false, mins: false };
        for (bits, halves, mins) in
            [(Bits::Eight, false, false), (Bits::Four, true, true), (Bits::Eight, true, true)]
        {
            let wide = AffineFormat { bits, halves, mins };
            let quants: Vec<u8> = (0..64).map(|k| (k * 7 % 16) as u8).collect();
            let before = row(quants.clone(), vec![0.5, 0.25], vec![0.0; 2]);
            let groups = 2 * wide.parts();
            let mut after = row(quants, vec![0.0; groups], vec![0.0; groups]);
            after.scales[..2].copy_from_slice(&[0.5, 0.25]);
            widen(&mut after, narrow, wide, 2);
            for k in 0..64 {
                assert_eq!(value(&before, narrow, k), value(&after, wide, k), "{wide:?} {k}");
            }
        }
    }

    #[test]
    fn quantised_groups_stay_within_half_a_step() {
        let values: Vec<f32> = (0..32).map(|k| (k as f32 * 0.9).sin() * 0.3 + 0.1).collect();
        for quantize in [Quantize::Q8, Quantize::Q4] {
            let mut out = empty_row(32, quantize.format());
            let factors = quantize.group(&values, &mut out.quants);
            (out.scales[0], out.mins[0]) = (factors.scale, factors.min);
            for (k, want) in values.iter().enumerate() {
                let got = value(&out, quantize.format(), k);
                assert!((got - want).abs() <= out.scales[0] * 0.501, "{quantize:?} {k}: {got} {want}");
            }
        }
    }

    #[test]
    fn gate_and_up_alternate_in_runs_of_sixteen() {
        assert_eq!(gated_place(0), (0, 0));
        assert_eq!(gated_place(16), (1, 0));
        assert_eq!(gated_place(33), (0, 17));
        let bias = gated_bias(&[1.0; 20], &[2.0; 20]);
        assert_eq!(bias.len(), 64);
        assert_eq!((bias[15], bias[16], bias[35], bias[36], bias[51]), (1.0, 2.0, 1.0, 0.0, 2.0));
    }
}
