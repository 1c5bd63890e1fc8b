//! An encoder's weights on the device: matrices as bf16, everything else as f32, in one allocation.

use ropeway_model::LoadError;
use ropeway_model::encoder::tensors::{EncoderTensors, MlpTensors, Projection};
use ropeway_model::encoder::{EncoderSpec, NormWeights};
use ropeway_weights::{Checkpoint, Tensor};

use crate::driver::{Address, Buffer, Device, Stream};
use crate::error::CudaError;
use crate::plan::aligned;
use crate::weights::{Ring, cos_sin};

/// Where something lies within the allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct WeightOffset(usize);

/// A matrix, `[outputs][inputs]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinearAt {
    pub(super) weight: WeightOffset,
    pub(super) bias: Option<WeightOffset>,
    pub(super) shape: [usize; 2],
}

/// A norm.
#[derive(Clone, Copy, Debug)]
pub(super) struct NormAt {
    pub(super) weight: WeightOffset,
    pub(super) bias: Option<WeightOffset>,
}

/// A layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayerAt {
    /// Absent where the embedding's norm has done it already.
    pub(super) attention_norm: Option<NormAt>,
    pub(super) qkv: LinearAt,
    pub(super) output: LinearAt,
    /// Gate and up, one under the other, or up alone.
    pub(super) up: LinearAt,
    pub(super) down: LinearAt,
    pub(super) mlp_norm: NormAt,
}

/// Where everything lies.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) words: WeightOffset,
    pub(super) positions: Option<WeightOffset>,
    pub(super) token_types: Option<WeightOffset>,
    pub(super) embedding_norm: NormAt,
    pub(super) layers: Vec<LayerAt>,
    pub(super) final_norm: Option<NormAt>,
    /// Times log2(e).
    pub(super) relative_bias: Option<WeightOffset>,
    /// Per rope, `[position][cosines | sines]`.
    pub(super) cos_sin: Vec<WeightOffset>,
    /// The first matrix of a cross-encoder's head.
    pub(super) dense: Option<LinearAt>,
}

/// Weights to be uploaded, each with its place.
#[derive(Default)]
pub(super) struct UploadList {
    bytes: usize,
    items: Vec<(WeightOffset, Item)>,
}

enum Item {
    Rows(Vec<Tensor>),
    Values(Vec<f32>),
}

/// Weights on the device.
pub(super) struct Weights {
    buffer: Buffer,
    pub(super) layout: Layout,
}

impl Weights {
    /// Where something lies; nowhere where there is none.
    pub(super) fn at(&self, place: impl Into<Option<WeightOffset>>) -> Address {
        place.into().map_or(Address::NULL, |place| self.buffer.address().plus(place.0))
    }
}

impl UploadList {
    /// Finds all weights of a checkpoint.
    pub(super) fn of(checkpoint: &Checkpoint, spec: &EncoderSpec) -> Result<(Self, Layout), LoadError> {
        let tensors = EncoderTensors::new(checkpoint, spec);
        let mut packing = Self::default();
        let inputs = tensors.inputs()?;
        let layers = (0..spec.layers.len())
            .map(|index| packing.layer(&tensors, index))
            .collect::<Result<Vec<_>, LoadError>>()?;
        let dense = tensors.scorer()?.map(|scorer| packing.linear(scorer.dense));
        let relative_bias = tensors.distances()?.iter().map(|bias| bias * std::f32::consts::LOG2_E).collect();
        let layout = Layout {
            words: packing.rows(vec![inputs.words]),
            positions: packing.some_values(inputs.positions),
            token_types: packing.some_values(inputs.token_types),
            embedding_norm: packing.norm(inputs.norm),
            layers,
            final_norm: tensors.final_norm()?.map(|norm| packing.norm(norm)),
            relative_bias: packing.some_values(relative_bias),
            cos_sin: spec.ropes.iter().map(|rope| packing.values(cos_sin(rope, spec.max_tokens))).collect(),
            dense,
        };
        Ok((packing, layout))
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Brings them onto the device.
    pub(super) fn upload(
        self,
        stream: &Stream,
        layout: Layout,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Weights, CudaError> {
        let device: &Device = stream.device();
        let buffer = device.allocate(self.bytes)?;
        let mut ring = Ring::new(stream)?;
        let count = self.items.len();
        for (index, (place, item)) in self.items.iter().enumerate() {
            let to = buffer.address().plus(place.0);
            match item {
                Item::Rows(tensors) => ring.write_rows(to, tensors)?,
                Item::Values(values) => ring.write_values(to, values)?,
            }
            progress(index + 1, count);
        }
        ring.finish()?;
        Ok(Weights { buffer, layout })
    }

    fn layer(&mut self, tensors: &EncoderTensors<'_>, index: usize) -> Result<LayerAt, LoadError> {
        let layer = tensors.layer(index)?;
        let (up, down) = self.mlp(layer.mlp);
        Ok(LayerAt {
            attention_norm: layer.attention_norm.map(|norm| self.norm(norm)),
            qkv: self.linear(layer.qkv),
            output: self.linear(layer.output),
            up,
            down,
            mlp_norm: self.norm(layer.mlp_norm),
        })
    }

    fn mlp(&mut self, mlp: MlpTensors) -> (LinearAt, LinearAt) {
        let up = match mlp.gate {
            None => mlp.up,
            Some(gate) => Projection {
                bias: gate.bias.zip(mlp.up.bias).map(|(gate, up)| [gate, up].concat()),
                tensors: [gate.tensors, mlp.up.tensors].concat(),
            },
        };
        (self.linear(up), self.linear(mlp.down))
    }

    fn linear(&mut self, projection: Projection) -> LinearAt {
        let outputs = projection.tensors.iter().map(Tensor::rows).sum();
        let shape = [outputs, projection.tensors[0].cols()];
        let bias = projection.bias.map(|bias| self.values(bias));
        LinearAt { weight: self.rows(projection.tensors), bias, shape }
    }

    fn norm(&mut self, norm: NormWeights) -> NormAt {
        NormAt { weight: self.values(norm.weight), bias: norm.bias.map(|bias| self.values(bias)) }
    }

    fn rows(&mut self, tensors: Vec<Tensor>) -> WeightOffset {
        let bytes = tensors.iter().map(|tensor| tensor.rows() * tensor.cols() * 2).sum();
        self.place(bytes, Item::Rows(tensors))
    }

    fn some_values(&mut self, values: Vec<f32>) -> Option<WeightOffset> {
        (!values.is_empty()).then(|| self.values(values))
    }

    fn values(&mut self, values: Vec<f32>) -> WeightOffset {
        self.place(values.len() * 4, Item::Values(values))
    }

    fn place(&mut self, bytes: usize, item: Item) -> WeightOffset {
        let place = WeightOffset(self.bytes);
        self.bytes += aligned(bytes);
        self.items.push((place, item));
        place
    }
}
