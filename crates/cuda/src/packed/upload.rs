//! A packed matrix on its way to the device: strips are packed by several threads, straight into pinned memory.

use ropeway_model::Quantize;
use ropeway_weights::{Bits, Tensor};

use super::kernels::RandomisePacked;
use super::{PackedForm, PackedKernels, RECORD_INPUTS, STRIP, Strip};
use crate::driver::{Address, LaunchShape, Stream};
use crate::error::CudaError;
use crate::plan::MatrixPlan;
use crate::weights::{Ring, STAGING_BYTES};

/// A matrix to be packed.
pub(crate) struct Packing<'a> {
    /// Its shape.
    pub(crate) matrix: &'a MatrixPlan,
    /// What it becomes.
    pub(crate) form: PackedForm,
    /// Where its rows come from: the tensors of one copy after those of the other.
    pub(crate) tensors: &'a [Tensor],
    /// How floats are packed.
    pub(crate) quantize: Option<Quantize>,
}

impl Packing<'_> {
    /// Packs the matrix and writes it to the device.
    pub(crate) fn write(&self, ring: &mut Ring<'_>, to: Address) -> Result<(), CudaError> {
        let bytes = self.form.strip_bytes(self.matrix.inputs);
        let mut strip_scales = vec![0.0; self.matrix.copies * self.matrix.strips()];
        let at_once = (STAGING_BYTES / bytes).max(1);
        let mut at = 0;
        for (index, strip_scales) in strip_scales.chunks_mut(at_once).enumerate() {
            at += ring.pass(to.plus(at), |piece| {
                let piece = &mut piece[..strip_scales.len() * bytes];
                self.pack(index * at_once, piece, strip_scales);
                piece.len()
            })?;
        }
        ring.write_values(to.plus(at), &strip_scales)
    }

    /// Reads the strip of this number.
    fn read(&self, index: usize, strip: &mut Strip) {
        let (copy, first) = (index / self.matrix.strips(), index % self.matrix.strips() * STRIP);
        let of_copy = self.tensors.len() / self.matrix.copies;
        let tensors = &self.tensors[copy * of_copy..][..of_copy];
        strip.clear();
        for slot in 0..STRIP.min(self.matrix.outputs - first) {
            let mut row = first + slot;
            for tensor in tensors {
                if row < tensor.rows() {
                    strip.read(slot, tensor, row, self.quantize);
                    break;
                }
                row -= tensor.rows();
            }
        }
    }

    /// Packs strips from `first` on, by several threads: records into `out`, a scale each into `strip_scales`.
    fn pack(&self, first: usize, out: &mut [u8], strip_scales: &mut [f32]) {
        let bytes = self.form.strip_bytes(self.matrix.inputs);
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let share = strip_scales.len().div_ceil(threads).max((1 << 17) / bytes).max(1);
        std::thread::scope(|scope| {
            for (index, (out, strip_scales)) in
                out.chunks_mut(share * bytes).zip(strip_scales.chunks_mut(share)).enumerate()
            {
                scope.spawn(move || {
                    let mut strip = Strip::new(self.form, self.matrix.inputs);
                    for (at, (out, strip_scale)) in out.chunks_exact_mut(bytes).zip(strip_scales).enumerate()
                    {
                        self.read(first + index * share + at, &mut strip);
                        *strip_scale = strip.pack(out);
                    }
                });
            }
        });
    }
}

/// Random weights of an amount, for measurements.
pub(crate) fn randomise(
    stream: &Stream,
    kernels: &PackedKernels,
    matrix: &MatrixPlan,
    w: Address,
    seed: u32,
) -> Result<(), CudaError> {
    // The variance of a product stays that of its inputs.
    let amount = (3.0 / matrix.inputs as f32).sqrt();
    let top: f32 = if kernels.form.bits == Bits::Four { 15.0 } else { 255.0 };
    let mut strip = Strip::new(kernels.form, RECORD_INPUTS);
    for slot in 0..STRIP {
        let row = strip.row(slot);
        row.scales.fill(2.0 * amount / top);
        row.mins.fill(-amount);
    }
    let mut record = vec![0; kernels.form.record_bytes()];
    let strip_scale = strip.pack(&mut record);
    let factors = record[kernels.form.quant_bytes()..].as_chunks::<4>().0;
    let strips = matrix.copies * matrix.strips();
    let records = strips * kernels.form.strip_bytes(matrix.inputs);
    let arguments = RandomisePacked {
        w,
        strip_scales: w.plus(records),
        words: records as u64 / 4,
        strips: strips as u32,
        low: u32::from_le_bytes(factors[0]),
        high: u32::from_le_bytes(factors[1]),
        strip_scale,
        seed,
    };
    let shape = LaunchShape { grid: [1024, 1, 1], threads: 256, shared_bytes: 0 };
    Ok(stream.launch(&kernels.randomise, shape, &arguments)?)
}
