//! From a checkpoint to packed weights, in the forms that the CPU's kernels read; `tensors` finds them.

use ropeway_kernels::Compute;
use ropeway_kernels::activations::Width;
use ropeway_weights::{Checkpoint, Tensor, WeightsError};

use crate::decoder::Decoder;
use crate::layer::{Embedding, Experts, GatedMlp, Layer, Linear, Mlp};
use crate::names::{Part, Role};
use crate::spec::{DecoderSpec, ExpertsSpec, MlpSpec};
use crate::stack::{Stack, gated_bias};
use crate::tensors::{DecoderTensors, EndTensors, GatedTensors, QkvTensors};
use crate::{RopeTable, SpecError};

/// Arithmetic of the forward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Weights as packed, integer products where they are quantised.
    #[default]
    Fast,
    /// Everything dequantised to f32 and computed in f32: slow, and the judge of the fast path.
    F32,
}

/// Packs float weights as integers at load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantize {
    /// 8 bits, groups of 32, symmetric.
    Q8,
    /// 4 bits, groups of 32, with a minimum.
    Q4,
}

/// How to load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Arithmetic of the forward pass.
    pub precision: Precision,
    /// Packs float weights as integers.
    pub quantize: Option<Quantize>,
}

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The files.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Their configuration.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A tensor that contradicts the configuration.
    #[error(
        "tensor `{name}` has shape {found:?} where the configuration asks for {wanted:?}; the checkpoint is damaged or of a variant Ropeway does not support"
    )]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// Rows and columns expected.
        wanted: [usize; 2],
    },
}

/// How finely the inputs of each product are quantised. What attention's projections and the head round away shows most in
/// the logits for the work it saves. Measured on the default model against f32, mean difference per log-probability and
/// share of positions with the same likeliest token: one byte in attention's inputs 0.040 and 95 %, two bytes 0.026 and
/// 98 %; two bytes in groups with outliers only, in the head as well, 0.027 and 97 %, for an eighth less time of a decode
/// step of 64 streams. The MLP's one byte is what remains.
const ATTENTION: Width = Width::Mixed;
const MLP: Width = Width::Narrow;
const HEAD: Width = Width::Mixed;

/// Told after each part of the model: parts done, parts in all.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);

/// Loads all weights of a decoder.
pub fn load(
    checkpoint: &Checkpoint,
    spec: DecoderSpec,
    options: LoadOptions,
    compute: &mut Compute,
    progress: Progress<'_>,
) -> Result<Decoder, LoadError> {
    let tensors = DecoderTensors::new(checkpoint, &spec);
    let mut loader = Loader { tensors, spec: &spec, options, compute };
    let parts = spec.layers.len() + 1;
    let mut layers = Vec::with_capacity(spec.layers.len());
    for index in 0..spec.layers.len() {
        layers.push(loader.layer(index)?);
        progress(index + 1, parts);
    }
    let (embedding, head) = loader.ends()?;
    let final_norm = tensors.vector(Role::FinalNorm, spec.hidden)?;
    progress(parts, parts);
    checkpoint.release_pages();
    let ropes = spec.ropes.iter().map(|rope| RopeTable::new(rope, spec.context)).collect();
    Ok(Decoder { spec, layers, embedding, final_norm, head, ropes })
}

struct Loader<'a> {
    tensors: DecoderTensors<'a>,
    spec: &'a DecoderSpec,
    options: LoadOptions,
    compute: &'a mut Compute,
}

impl Loader<'_> {
    fn layer(&mut self, index: usize) -> Result<Layer, LoadError> {
        let (spec, tensors) = (self.spec, self.tensors);
        let hidden = spec.hidden;
        let role = |part| Role::Layer(index, part);
        let post = |part| spec.post_norms.then(|| tensors.vector(role(part), hidden)).transpose();
        Ok(Layer {
            attention_norm: tensors.vector(role(Part::AttentionNorm), hidden)?,
            qkv: self.qkv(index)?,
            head_norms: tensors.head_norms(index)?,
            output: self.linear(
                role(Part::Output),
                role(Part::OutputBias),
                [hidden, spec.q_width()],
                ATTENTION,
            )?,
            post_attention_norm: post(Part::PostAttentionNorm)?,
            mlp_norm: tensors.vector(role(Part::MlpNorm), hidden)?,
            mlp: match spec.layers[index].mlp {
                MlpSpec::Dense { intermediate } => Mlp::Dense(self.dense(index, intermediate)?),
                MlpSpec::Experts(experts) => Mlp::Experts(self.experts(index, experts)?),
            },
            post_mlp_norm: post(Part::PostMlpNorm)?,
        })
    }

    /// Queries, keys and values: one matrix where their forms allow it without widening, else one each.
    fn qkv(&mut self, index: usize) -> Result<Vec<Linear>, LoadError> {
        let QkvTensors { tensors, bias } = self.tensors.qkv(index)?;
        if tensors.iter().all(|tensor| tensor.form() == tensors[0].form()) {
            return Ok(vec![self.pack(&Stack::stacked(tensors), bias, ATTENTION)]);
        }
        let mut row = 0;
        let mut part = |loader: &mut Self, tensor: Tensor| {
            let rows = row..row + tensor.rows();
            row = rows.end;
            let bias = bias.as_ref().map(|bias| bias[rows].to_vec());
            loader.pack(&Stack::stacked(vec![tensor]), bias, ATTENTION)
        };
        Ok(tensors.into_iter().map(|tensor| part(self, tensor)).collect())
    }

    fn dense(&mut self, index: usize, intermediate: usize) -> Result<GatedMlp, LoadError> {
        let bias = |part, len| self.tensors.bias(Role::Layer(index, part), len);
        let gate_bias = bias(Part::GateBias, intermediate)?;
        let up_bias = bias(Part::UpBias, intermediate)?;
        let down_bias = bias(Part::DownBias, self.spec.hidden)?;
        let GatedTensors { gate, up, down } = self.tensors.gated(index, intermediate)?;
        let bias = gate_bias.zip(up_bias).map(|(gate, up)| gated_bias(&gate, &up));
        let gate_up = self.pack(&Stack::gated(gate, up), bias, MLP);
        let down = self.pack(&Stack::stacked(vec![down]), down_bias, MLP);
        Ok(GatedMlp { gate_up, down, intermediate })
    }

    fn experts(&mut self, index: usize, spec: ExpertsSpec) -> Result<Experts, LoadError> {
        let router =
            self.tensors.tensor(Role::Layer(index, Part::Router), [spec.experts, self.spec.hidden])?;
        // Routing decides which weights are used at all: it is always computed in floats.
        let matrix = Stack::stacked(vec![router]).pack(self.compute.pool(), Precision::F32, None);
        let router = Linear { matrix, bias: None, width: Width::Narrow };
        let mut mlps = Vec::with_capacity(spec.experts);
        for expert in 0..spec.experts {
            let GatedTensors { gate, up, down } = self.tensors.expert(index, expert, spec)?;
            let gate_up = self.pack(&Stack::gated(gate, up), None, MLP);
            let down = self.pack(&Stack::stacked(vec![down]), None, MLP);
            mlps.push(GatedMlp { gate_up, down, intermediate: spec.intermediate });
        }
        Ok(Experts { spec, router, mlps })
    }

    /// Embedding and head; one matrix serves as both where they are tied.
    fn ends(&mut self) -> Result<(Embedding, Linear), LoadError> {
        let EndTensors { embedding, head } = self.tensors.ends()?;
        let (embedding, head) = match head {
            Some(head) => (Embedding::Own(embedding), head),
            None => (Embedding::Tied, embedding),
        };
        Ok((embedding, self.pack(&Stack::stacked(vec![head]), None, HEAD)))
    }

    fn linear(
        &mut self,
        weight: Role,
        bias: Role,
        shape: [usize; 2],
        width: Width,
    ) -> Result<Linear, LoadError> {
        let tensor = self.tensors.tensor(weight, shape)?;
        let bias = self.tensors.bias(bias, shape[0])?;
        Ok(self.pack(&Stack::stacked(vec![tensor]), bias, width))
    }

    fn pack(&mut self, stack: &Stack, bias: Option<Vec<f32>>, width: Width) -> Linear {
        let matrix = stack.pack(self.compute.pool(), self.options.precision, self.options.quantize);
        self.compute.reserve_cols(matrix.cols());
        Linear { matrix, bias, width }
    }
}
