//! Weights on the device: where each lies, and how it gets there.
//!
//! ```text
//! mapped file ── threads: rows to bf16 ──> pinned ring ── copies in order ──> one allocation, plan order
//! ```
//! Matrices of floats are plain `[outputs][inputs]` bf16, quantised ones stay packed (`packed`); vectors are f32, with what a norm adds to
//! its weights added.

use ropeway_model::names::{Part, Role};
use ropeway_model::spec::{MlpSpec, RopeSpec};
use ropeway_model::tensors::{DecoderTensors, GatedTensors};
use ropeway_model::{DecoderSpec, LoadError, Quantize, RopeTable};
use ropeway_weights::{Checkpoint, Tensor};

use crate::driver::{Address, Buffer, Device, Event, LaunchShape, Pinned, Stream};
use crate::error::CudaError;
use crate::kernels::{ProductKernels, Randomise};
use crate::packed::{self, Packing};
use crate::plan::{Form, MatrixId, MatrixPlan, MatrixRole, Plan, VectorId, VectorPlan, VectorRole, aligned};

/// Bytes of a staging buffer: long enough for copies at full speed.
pub(crate) const STAGING_BYTES: usize = 32 << 20;

/// Staging buffers: one is copied while others are filled.
const STAGING_BUFFERS: usize = 3;

/// Where weights come from.
pub enum WeightSource<'a> {
    /// A model's files.
    Checkpoint(&'a Checkpoint),
    /// Random numbers of a seed: for measurements.
    Random(u32),
}

/// A model's weights on the device.
pub struct Weights {
    _buffer: Buffer,
    matrices: Vec<Address>,
    vectors: Vec<Address>,
}

impl Weights {
    /// Allocates and fills all weights of a plan.
    pub fn upload(
        stream: &Stream,
        kernels: &ProductKernels,
        spec: &DecoderSpec,
        plan: &Plan,
        source: &WeightSource<'_>,
        quantize: Option<Quantize>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CudaError> {
        let buffer = stream.device().allocate(plan.weight_bytes())?;
        let mut next = buffer.address();
        let mut place = |bytes: usize| {
            let place = next;
            next = next.plus(aligned(bytes));
            place
        };
        let matrices: Vec<Address> = plan.matrices.iter().map(|m| place(m.bytes())).collect();
        let vectors: Vec<Address> = plan.vectors.iter().map(|v| place(v.len * 4)).collect();
        let mut ring = Ring::new(stream)?;
        let parts = plan.matrices.len();
        for (index, (matrix, place)) in plan.matrices.iter().zip(&matrices).enumerate() {
            match source {
                WeightSource::Checkpoint(checkpoint) => {
                    let tensors = DecoderTensors::new(checkpoint, spec);
                    let tensors = &matrix_tensors(&tensors, spec, matrix)?[..];
                    match matrix.form {
                        Form::Bf16 => ring.write_rows(*place, tensors)?,
                        Form::Packed(form) => {
                            Packing { matrix, form, tensors, quantize }.write(&mut ring, *place)?;
                        }
                    }
                }
                WeightSource::Random(seed) => {
                    let seed = seed + index as u32;
                    match matrix.form {
                        Form::Bf16 => randomise(stream, kernels, matrix, *place, seed)?,
                        Form::Packed(form) => {
                            packed::randomise(stream, kernels.packed(form), matrix, *place, seed)?;
                        }
                    }
                }
            }
            progress(index + 1, parts);
        }
        for (vector, place) in plan.vectors.iter().zip(&vectors) {
            let values = match source {
                WeightSource::Checkpoint(checkpoint) => {
                    vector_values(&DecoderTensors::new(checkpoint, spec), spec, vector)?
                }
                WeightSource::Random(_) => made_up_vector(spec, vector),
            };
            ring.write_values(*place, &values)?;
        }
        ring.finish()?;
        Ok(Self { _buffer: buffer, matrices, vectors })
    }

    /// Where a matrix lies.
    pub fn matrix(&self, id: MatrixId) -> Address {
        self.matrices[id.0]
    }

    /// Where a vector lies; nowhere where there is none.
    pub fn vector(&self, id: Option<VectorId>) -> Address {
        id.map_or(Address::NULL, |id| self.vectors[id.0])
    }
}

fn randomise(
    stream: &Stream,
    kernels: &ProductKernels,
    matrix: &MatrixPlan,
    values: Address,
    seed: u32,
) -> Result<(), CudaError> {
    let count = matrix.values() as u64;
    // The variance of a product stays that of its inputs.
    let amount = (3.0 / matrix.inputs as f32).sqrt();
    let shape = LaunchShape { grid: [1024, 1, 1], threads: 256, shared_bytes: 0 };
    Ok(stream.launch(&kernels.randomise, shape, &Randomise { values, count, seed, amount })?)
}

/// The tensors whose rows follow each other in a matrix.
pub(crate) fn matrix_tensors(
    tensors: &DecoderTensors<'_>,
    spec: &DecoderSpec,
    matrix: &MatrixPlan,
) -> Result<Vec<Tensor>, LoadError> {
    let dense = |layer, width| tensors.gated(layer, width);
    let experts = |layer: usize| match spec.layers[layer].mlp {
        MlpSpec::Experts(experts) => {
            (0..experts.experts).map(|expert| tensors.expert(layer, expert, experts)).collect()
        }
        MlpSpec::Dense { .. } => Ok(Vec::new()),
    };
    Ok(match matrix.role {
        MatrixRole::Embedding => vec![tensors.ends()?.embedding],
        MatrixRole::Head => {
            let ends = tensors.ends()?;
            vec![ends.head.unwrap_or(ends.embedding)]
        }
        MatrixRole::Qkv(layer) => tensors.qkv(layer)?.tensors,
        MatrixRole::Output(layer) => {
            vec![tensors.tensor(Role::Layer(layer, Part::Output), [matrix.outputs, matrix.inputs])?]
        }
        MatrixRole::GateUp(layer) => {
            let GatedTensors { gate, up, .. } = dense(layer, matrix.outputs / 2)?;
            vec![gate, up]
        }
        MatrixRole::Down(layer) => vec![dense(layer, matrix.inputs)?.down],
        MatrixRole::ExpertGateUp(layer) => {
            let all: Vec<GatedTensors> = experts(layer)?;
            all.into_iter().flat_map(|expert| [expert.gate, expert.up]).collect()
        }
        MatrixRole::ExpertDown(layer) => {
            let all: Vec<GatedTensors> = experts(layer)?;
            all.into_iter().map(|expert| expert.down).collect()
        }
    })
}

fn vector_values(
    tensors: &DecoderTensors<'_>,
    spec: &DecoderSpec,
    vector: &VectorPlan,
) -> Result<Vec<f32>, LoadError> {
    let len = vector.len;
    let norm = |layer, part| {
        let weights = tensors.vector(Role::Layer(layer, part), len)?;
        Ok::<_, LoadError>(offset(weights, spec))
    };
    let bias = |layer, part, len| {
        Ok::<_, LoadError>(tensors.bias(Role::Layer(layer, part), len)?.unwrap_or_else(|| vec![0.0; len]))
    };
    Ok(match vector.role {
        VectorRole::AttentionNorm(layer) => norm(layer, Part::AttentionNorm)?,
        VectorRole::QkvBias(layer) => tensors.qkv(layer)?.bias.unwrap_or_else(|| vec![0.0; len]),
        VectorRole::QueryNorm(layer) => norm(layer, Part::QNorm)?,
        VectorRole::KeyNorm(layer) => norm(layer, Part::KNorm)?,
        VectorRole::OutputBias(layer) => bias(layer, Part::OutputBias, len)?,
        VectorRole::PostAttentionNorm(layer) => norm(layer, Part::PostAttentionNorm)?,
        VectorRole::MlpNorm(layer) => norm(layer, Part::MlpNorm)?,
        VectorRole::GateUpBias(layer) => {
            [bias(layer, Part::GateBias, len / 2)?, bias(layer, Part::UpBias, len / 2)?].concat()
        }
        VectorRole::DownBias(layer) => bias(layer, Part::DownBias, len)?,
        VectorRole::PostMlpNorm(layer) => norm(layer, Part::PostMlpNorm)?,
        VectorRole::Router(layer) => {
            let shape = [len / spec.hidden, spec.hidden];
            read_rows(&tensors.tensor(Role::Layer(layer, Part::Router), shape)?)
        }
        VectorRole::FinalNorm => offset(tensors.vector(Role::FinalNorm, len)?, spec),
        VectorRole::CosSin(rope) => cos_sin(&spec.ropes[rope], spec.context),
    })
}

fn made_up_vector(spec: &DecoderSpec, vector: &VectorPlan) -> Vec<f32> {
    match vector.role {
        VectorRole::CosSin(rope) => cos_sin(&spec.ropes[rope], spec.context),
        VectorRole::QkvBias(_)
        | VectorRole::OutputBias(_)
        | VectorRole::GateUpBias(_)
        | VectorRole::DownBias(_) => {
            vec![0.0; vector.len]
        }
        VectorRole::Router(_) => {
            (0..vector.len).map(|index| ((index * 7919) % 1009) as f32 / 1009.0 - 0.5).collect()
        }
        _ => vec![1.0; vector.len],
    }
}

fn offset(mut weights: Vec<f32>, spec: &DecoderSpec) -> Vec<f32> {
    for weight in &mut weights {
        *weight += spec.norm.offset;
    }
    weights
}

fn read_rows(tensor: &Tensor) -> Vec<f32> {
    let mut out = vec![0.0; tensor.rows() * tensor.cols()];
    for (row, out) in out.chunks_exact_mut(tensor.cols()).enumerate() {
        tensor.read_f32(row, out);
    }
    out
}

/// `[position][cosines | sines]` of a rope.
pub(crate) fn cos_sin(rope: &RopeSpec, positions: usize) -> Vec<f32> {
    let table = RopeTable::new(rope, positions);
    let pairs = table.pairs();
    let mut out = vec![0.0; positions * 2 * pairs];
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = positions.div_ceil(threads);
    std::thread::scope(|scope| {
        for (index, part) in out.chunks_mut(share * 2 * pairs).enumerate() {
            let table = &table;
            scope.spawn(move || {
                for (row, out) in part.chunks_exact_mut(2 * pairs).enumerate() {
                    let (cos, sin) = out.split_at_mut(pairs);
                    table.fill(index * share + row, cos, sin);
                }
            });
        }
    });
    out
}

/// Pinned memory that is filled by threads and copied to the device in turn.
pub(crate) struct Ring<'a> {
    stream: &'a Stream,
    pieces: Vec<(Pinned, Event)>,
    next: usize,
}

impl<'a> Ring<'a> {
    /// A ring of pinned memory.
    pub(crate) fn new(stream: &'a Stream) -> Result<Self, CudaError> {
        let device: &Device = stream.device();
        let piece = |_| Ok::<_, CudaError>((device.allocate_pinned(STAGING_BYTES)?, device.event()?));
        Ok(Self { stream, pieces: (0..STAGING_BUFFERS).map(piece).collect::<Result<_, _>>()?, next: 0 })
    }

    /// Waits for the oldest piece, has `fill` write into it, and copies as many bytes as it says.
    pub(crate) fn pass(
        &mut self,
        to: Address,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<usize, CudaError> {
        let (piece, event) = &mut self.pieces[self.next];
        event.synchronize()?;
        let bytes = fill(piece.bytes_mut());
        self.stream.upload(to, piece, 0, bytes)?;
        self.stream.record(event)?;
        self.next = (self.next + 1) % STAGING_BUFFERS;
        Ok(bytes)
    }

    /// Writes tensors one under the other as bf16.
    pub(crate) fn write_rows(&mut self, to: Address, tensors: &[Tensor]) -> Result<(), CudaError> {
        let mut at = 0;
        for tensor in tensors {
            let row_bytes = tensor.cols() * 2;
            let step = (STAGING_BYTES / row_bytes).max(1);
            for first in (0..tensor.rows()).step_by(step) {
                let rows = step.min(tensor.rows() - first);
                at += self.pass(to.plus(at), |piece| {
                    fill_rows(tensor, first, &mut piece[..rows * row_bytes]);
                    rows * row_bytes
                })?;
            }
        }
        Ok(())
    }

    /// Writes values as they are.
    pub(crate) fn write_values(&mut self, to: Address, values: &[f32]) -> Result<(), CudaError> {
        for (index, values) in values.chunks(STAGING_BYTES / 4).enumerate() {
            self.pass(to.plus(index * STAGING_BYTES), |piece| {
                for (bytes, value) in piece.chunks_exact_mut(4).zip(values) {
                    bytes.copy_from_slice(&value.to_le_bytes());
                }
                values.len() * 4
            })?;
        }
        Ok(())
    }

    /// Waits until all of it is written.
    pub(crate) fn finish(self) -> Result<(), CudaError> {
        Ok(self.stream.synchronize()?)
    }
}

/// Rows of a tensor from `first` on as bf16, by several threads.
fn fill_rows(tensor: &Tensor, first: usize, out: &mut [u8]) {
    let row_bytes = tensor.cols() * 2;
    let rows = out.len() / row_bytes;
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = rows.div_ceil(threads).max((1 << 18) / row_bytes).max(1);
    std::thread::scope(|scope| {
        for (index, part) in out.chunks_mut(share * row_bytes).enumerate() {
            scope.spawn(move || {
                let mut values = vec![0.0; tensor.cols()];
                for (row, out) in part.chunks_exact_mut(row_bytes).enumerate() {
                    tensor.read_f32(first + index * share + row, &mut values);
                    for (bytes, value) in out.chunks_exact_mut(2).zip(&values) {
                        bytes.copy_from_slice(&narrow(*value).to_le_bytes());
                    }
                }
            });
        }
    });
}

/// The nearest bf16, ties to even; NaN stays NaN.
fn narrow(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    if value.is_nan() { (bits >> 16) as u16 | 0x40 } else { rounded as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_to_the_nearest_bf16_and_nan_stays_nan() {
        assert_eq!(narrow(1.0), 0x3f80);
        assert_eq!(narrow(f32::from_bits(0x3f80_8000)), 0x3f80, "a tie goes to the even one");
        assert_eq!(narrow(f32::from_bits(0x3f81_8000)), 0x3f82, "a tie goes to the even one");
        assert_eq!(narrow(f32::from_bits(0x3f80_8001)), 0x3f81);
        assert_eq!(narrow(f32::NEG_INFINITY), 0xff80);
        assert!(f32::from_bits(u32::from(narrow(f32::NAN)) << 16).is_nan());
    }
}
