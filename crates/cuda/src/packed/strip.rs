//! Sixteen rows of a matrix, read from a file and packed into the records that kernels read.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use ropeway_model::Quantize;
use ropeway_weights::{AffineForm, AffineRow, Bits, Form, Group, Tensor, Zero};

use super::PackedForm;
use super::form::{RECORD_INPUTS, STRIP};

/// Inputs of a group of quantised floats.
const GROUP: usize = Group::ThirtyTwo.len();

/// Scales and mins of a record at most.
const MOST_FACTORS: usize = 2 * STRIP * RECORD_INPUTS / Group::Sixteen.len();

/// The exponent just below the top of f16's range.
const TOP: f32 = 15.0;

/// What scales of 8-bit quants are multiplied by: where such a quant stands in a mantissa.
const SHIFT: f32 = 32768.0;

/// The quant of 4 bits whose weight is a group's middle.
const MIDDLE: f32 = 8.0;

/// Sixteen rows as quants, scales and mins; rows and inputs that are not there are zeros.
#[derive(Clone, Debug)]
pub struct Strip {
    form: PackedForm,
    inputs: usize,
    /// `[16][inputs, padded to whole records]`.
    quants: Vec<u8>,
    /// `[16][groups]`.
    scales: Vec<f32>,
    /// `[16][groups]`.
    mins: Vec<f32>,
    /// A row of floats on its way to quants.
    values: Vec<f32>,
}

impl Strip {
    /// Zeros.
    pub fn new(form: PackedForm, inputs: usize) -> Self {
        let padded = inputs.next_multiple_of(RECORD_INPUTS);
        let groups = padded / form.group.len();
        Self {
            form,
            inputs,
            quants: vec![0; STRIP * padded],
            scales: vec![0.0; STRIP * groups],
            mins: vec![0.0; STRIP * groups],
            values: vec![0.0; inputs],
        }
    }

    /// Back to zeros.
    pub fn clear(&mut self) {
        self.quants.fill(0);
        self.scales.fill(0.0);
        self.mins.fill(0.0);
    }

    fn padded(&self) -> usize {
        self.quants.len() / STRIP
    }

    fn groups(&self) -> usize {
        self.scales.len() / STRIP
    }

    /// The row in `slot`, whole.
    pub fn row(&mut self, slot: usize) -> AffineRow<'_> {
        let (padded, groups) = (self.padded(), self.groups());
        AffineRow {
            quants: &mut self.quants[slot * padded..][..padded],
            scales: &mut self.scales[slot * groups..][..groups],
            mins: &mut self.mins[slot * groups..][..groups],
        }
    }

    /// Reads a tensor's row; one of floats is packed as `quantize` says.
    pub fn read(&mut self, slot: usize, tensor: &Tensor, row: usize, quantize: Option<Quantize>) {
        match (tensor.form(), quantize) {
            (Form::Affine(form), _) => self.read_affine(slot, tensor, row, form),
            (Form::Float(_), Some(quantize)) => self.quantise(slot, tensor, row, quantize),
            (Form::Float(_), None) => unreachable!("a matrix with floats has no packed form"),
        }
    }

    fn read_affine(&mut self, slot: usize, tensor: &Tensor, row: usize, from: AffineForm) {
        let (inputs, form) = (self.inputs, self.form);
        let groups = inputs / from.group.len();
        let AffineRow { quants, scales, mins } = self.row(slot);
        let own = AffineRow {
            quants: &mut quants[..inputs],
            scales: &mut scales[..groups],
            mins: &mut mins[..groups],
        };
        tensor.read_affine(row, own);
        if from.zero == Zero::Fixed {
            let zero = f32::from(from.bits.zero_point());
            mins.iter_mut().zip(&*scales).for_each(|(min, scale)| *min = -zero * scale);
        }
        if form.bits == Bits::Four {
            centre(&mut quants[..inputs], scales, mins);
        }
        if from.group != form.group {
            for group in (0..groups).rev() {
                let (scale, min) = (scales[group], mins[group]);
                scales[2 * group..2 * group + 2].fill(scale);
                mins[2 * group..2 * group + 2].fill(min);
            }
        }
    }

    fn quantise(&mut self, slot: usize, tensor: &Tensor, row: usize, quantize: Quantize) {
        let mut values = std::mem::take(&mut self.values);
        tensor.read_f32(row, &mut values);
        let repeat = GROUP / self.form.group.len();
        let AffineRow { quants, scales, mins } = self.row(slot);
        for (group, values) in values.chunks(GROUP).enumerate() {
            let factors = quantize.group(values, &mut quants[group * GROUP..]);
            scales[group * repeat..][..repeat].fill(factors.scale);
            mins[group * repeat..][..repeat].fill(factors.min);
        }
        self.values = values;
    }

    /// Writes the records; what their weights are multiples of.
    pub fn pack(&self, out: &mut [u8]) -> f32 {
        let strip_scale = self.strip_scale();
        for (block, record) in out.chunks_exact_mut(self.form.record_bytes()).enumerate() {
            let (quants, factors) = record.split_at_mut(self.form.quant_bytes());
            match self.form.bits {
                Bits::Four => self.put_nibbles(block, quants),
                Bits::Eight => self.put_bytes(block, quants),
            }
            self.put_factors(block, strip_scale, factors);
        }
        strip_scale
    }

    /// The power of two that brings the largest factor just below the top of f16's range; 1 where factors have the range of an f32.
    fn strip_scale(&self) -> f32 {
        if self.form.bits == Bits::Four {
            return 1.0;
        }
        let largest = |values: &[f32]| values.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
        let most = largest(&self.mins).max(largest(&self.scales) * SHIFT);
        if most > 0.0 && most.is_finite() { (most.log2().ceil() - TOP).exp2() } else { 1.0 }
    }

    /// The quants of one output in one record.
    fn block(&self, slot: usize, block: usize) -> &[u8; RECORD_INPUTS] {
        let at = slot * self.padded() + block * RECORD_INPUTS;
        self.quants[at..].first_chunk().expect("rows are padded to whole records")
    }

    fn put_nibbles(&self, block: usize, out: &mut [u8]) {
        for (output, lanes) in out.as_chunks_mut::<64>().0.iter_mut().enumerate() {
            let (low, high) = (self.block(output, block), self.block(output + 8, block));
            let mut pairs = [0; RECORD_INPUTS];
            for (pair, (low, high)) in pairs.iter_mut().zip(low.iter().zip(high)) {
                *pair = low & 15 | high << 4;
            }
            for (lane, words) in lanes.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                for (word, of_step) in words.as_chunks_mut::<4>().0.iter_mut().zip(pairs.as_chunks::<16>().0)
                {
                    let [a, b, c, d] = inputs_of_lane(of_step, lane);
                    *word = [a, c, b, d];
                }
            }
        }
    }

    fn put_bytes(&self, block: usize, out: &mut [u8]) {
        let (pieces, _) = out.as_chunks_mut::<512>();
        for output in 0..8 {
            let (low, high) = (self.block(output, block), self.block(output + 8, block));
            let steps = low.as_chunks::<16>().0.iter().zip(high.as_chunks::<16>().0);
            for (step, (low, high)) in steps.enumerate() {
                for lane in 0..4 {
                    let words = &mut pieces[step / 2][(output * 4 + lane) * 16 + step % 2 * 8..][..8];
                    words[..4].copy_from_slice(&inputs_of_lane(low, lane));
                    words[4..].copy_from_slice(&inputs_of_lane(high, lane));
                }
            }
        }
    }

    /// Both factors of every output and group, as 16-bit numbers.
    fn put_factors(&self, block: usize, strip_scale: f32, out: &mut [u8]) {
        let (groups, in_record) = (self.groups(), RECORD_INPUTS / self.form.group.len());
        let mut values = [0.0; MOST_FACTORS];
        for slot in 0..STRIP {
            let first = slot * groups + block * in_record;
            for (group, at) in (first..first + in_record).enumerate() {
                let place = (group / 2 * 8 + slot % 8) * 4 + group % 2 * 2 + slot / 8;
                let (scale, min) = (self.scales[at], self.mins[at]);
                [values[2 * place], values[2 * place + 1]] = match self.form.bits {
                    Bits::Four => [scale, min + MIDDLE * scale],
                    Bits::Eight => [scale * (SHIFT / strip_scale), min / strip_scale],
                };
            }
        }
        match self.form.bits {
            Bits::Four => put_bf16(&values, out),
            Bits::Eight => put_f16(&values, out),
        }
    }
}

/// Moves quants of 2 or 3 bits to the middle of 4: there, what rounded factors are off by matters least.
fn centre(quants: &mut [u8], scales: &[f32], mins: &mut [f32]) {
    let shift = match quants.iter().max() {
        Some(0..=3) => 6,
        Some(4..=7) => 4,
        _ => return,
    };
    for quant in quants {
        *quant += shift;
    }
    mins.iter_mut().zip(scales).for_each(|(min, scale)| *min -= f32::from(shift) * scale);
}

/// As many values as there is room for.
fn put_bf16(values: &[f32; MOST_FACTORS], out: &mut [u8]) {
    let mut halves = [bf16::ZERO; MOST_FACTORS];
    halves.convert_from_f32_slice(values);
    out.as_chunks_mut().0.iter_mut().zip(halves).for_each(|(bytes, half)| *bytes = half.to_le_bytes());
}

/// As many values as there is room for.
fn put_f16(values: &[f32; MOST_FACTORS], out: &mut [u8]) {
    let mut halves = [f16::ZERO; MOST_FACTORS];
    halves.convert_from_f32_slice(values);
    out.as_chunks_mut().0.iter_mut().zip(halves).for_each(|(bytes, half)| *bytes = half.to_le_bytes());
}

/// The inputs of a step that a lane multiplies.
fn inputs_of_lane(step: &[u8; 16], lane: usize) -> [u8; 4] {
    [step[2 * lane], step[2 * lane + 1], step[2 * lane + 8], step[2 * lane + 9]]
}
