//! From a checkpoint to packed weights: find each tensor by its role, check its shape, pack it.

use ropeway_kernels::Compute;
use ropeway_kernels::activations::Width;
use ropeway_weights::{Checkpoint, Tensor, WeightsError};

use crate::decoder::Decoder;
use crate::layer::{Embedding, Experts, GatedMlp, HeadNormWeights, Layer, Linear, Mlp};
use crate::names::{ExpertPart, Part, Role, TensorNames};
use crate::spec::{DecoderSpec, ExpertsSpec, MlpSpec, QkNorm};
use crate::stack::{Stack, gated_bias};
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
    let mut loader = Loader { checkpoint, names: TensorNames::of(checkpoint), spec: &spec, options, compute };
    let parts = spec.layers.len() + 1;
    let mut layers = Vec::with_capacity(spec.layers.len());
    for index in 0..spec.layers.len() {
        layers.push(loader.layer(index)?);
        progress(index + 1, parts);
    }
    let (embedding, head) = loader.ends()?;
    let final_norm = loader.vector(Role::FinalNorm, spec.hidden)?;
    progress(parts, parts);
    checkpoint.release_pages();
    let ropes = spec.ropes.iter().map(|rope| RopeTable::new(rope, spec.context)).collect();
    Ok(Decoder { spec, layers, embedding, final_norm, head, ropes })
}

struct Loader<'a> {
    checkpoint: &'a Checkpoint,
    names: TensorNames,
    spec: &'a DecoderSpec,
    options: LoadOptions,
    compute: &'a mut Compute,
}

impl Loader<'_> {
    fn layer(&mut self, index: usize) -> Result<Layer, LoadError> {
        let spec = self.spec;
        let hidden = spec.hidden;
        let role = |part| Role::Layer(index, part);
        let post =
            |loader: &Self, part| spec.post_norms.then(|| loader.vector(role(part), hidden)).transpose();
        Ok(Layer {
            attention_norm: self.vector(role(Part::AttentionNorm), hidden)?,
            qkv: self.qkv(index)?,
            head_norms: self.head_norms(index)?,
            output: self.linear(
                role(Part::Output),
                role(Part::OutputBias),
                [hidden, spec.q_width()],
                ATTENTION,
            )?,
            post_attention_norm: post(self, Part::PostAttentionNorm)?,
            mlp_norm: self.vector(role(Part::MlpNorm), hidden)?,
            mlp: match spec.layers[index].mlp {
                MlpSpec::Dense { intermediate } => Mlp::Dense(self.dense(index, intermediate)?),
                MlpSpec::Experts(experts) => Mlp::Experts(self.experts(index, experts)?),
            },
            post_mlp_norm: post(self, Part::PostMlpNorm)?,
        })
    }

    fn head_norms(&self, index: usize) -> Result<Option<HeadNormWeights>, LoadError> {
        let spec = self.spec;
        let (q, k) = match spec.attention.qk_norm {
            None => return Ok(None),
            Some(QkNorm::PerHead) => (spec.head_dim, spec.head_dim),
            Some(QkNorm::WholeRow) => (spec.q_width(), spec.kv_width()),
        };
        let query = self.vector(Role::Layer(index, Part::QNorm), q)?;
        let key = self.vector(Role::Layer(index, Part::KNorm), k)?;
        Ok(Some(HeadNormWeights { query, key }))
    }

    /// Queries, keys and values: one matrix where their forms allow it without widening, else one each.
    fn qkv(&mut self, index: usize) -> Result<Vec<Linear>, LoadError> {
        let spec = self.spec;
        let (hidden, q, kv) = (spec.hidden, spec.q_width(), spec.kv_width());
        let role = |part| Role::Layer(index, part);
        if let Some(fused) = self.names.find(self.checkpoint, role(Part::Qkv)) {
            let tensor = checked(fused, [q + 2 * kv, hidden])?;
            let bias = self.bias(role(Part::QkvBias), q + 2 * kv)?;
            return Ok(vec![self.pack(&Stack::stacked(vec![tensor]), bias, ATTENTION)]);
        }
        let mut tensors = Vec::new();
        let mut biases = Vec::new();
        for (weight, bias, rows) in
            [(Part::Q, Part::QBias, q), (Part::K, Part::KBias, kv), (Part::V, Part::VBias, kv)]
        {
            tensors.push(self.tensor(role(weight), [rows, hidden])?);
            biases.push(self.bias(role(bias), rows)?.unwrap_or_else(|| vec![0.0; rows]));
        }
        let has_bias = biases.iter().flatten().any(|&bias| bias != 0.0);
        if tensors.iter().all(|tensor| tensor.form() == tensors[0].form()) {
            let bias = has_bias.then(|| biases.concat());
            return Ok(vec![self.pack(&Stack::stacked(tensors), bias, ATTENTION)]);
        }
        let parts = tensors.into_iter().zip(biases);
        Ok(parts
            .map(|(t, bias)| self.pack(&Stack::stacked(vec![t]), has_bias.then_some(bias), ATTENTION))
            .collect())
    }

    fn dense(&mut self, index: usize, intermediate: usize) -> Result<GatedMlp, LoadError> {
        let role = |part| Role::Layer(index, part);
        let hidden = self.spec.hidden;
        let fused = match self.names.find(self.checkpoint, role(Part::Gate)) {
            None => self.names.find(self.checkpoint, role(Part::GateUp)),
            Some(_) => None,
        };
        let (gate, up) = if let Some(fused) = fused {
            split_gate_up(&checked(fused, [2 * intermediate, hidden])?)
        } else {
            let shape = [intermediate, hidden];
            (self.tensor(role(Part::Gate), shape)?, self.tensor(role(Part::Up), shape)?)
        };
        let gate_bias = self.bias(role(Part::GateBias), intermediate)?;
        let up_bias = self.bias(role(Part::UpBias), intermediate)?;
        let bias = gate_bias.zip(up_bias).map(|(gate, up)| gated_bias(&gate, &up));
        let gate_up = self.pack(&Stack::gated(gate, up), bias, MLP);
        let down = self.linear(role(Part::Down), role(Part::DownBias), [hidden, intermediate], MLP)?;
        Ok(GatedMlp { gate_up, down, intermediate })
    }

    fn experts(&mut self, index: usize, spec: ExpertsSpec) -> Result<Experts, LoadError> {
        let router = self.tensor(Role::Layer(index, Part::Router), [spec.experts, self.spec.hidden])?;
        // Routing decides which weights are used at all: it is always computed in floats.
        let matrix = Stack::stacked(vec![router]).pack(self.compute.pool(), Precision::F32, None);
        let router = Linear { matrix, bias: None, width: Width::Narrow };
        let mut mlps = Vec::with_capacity(spec.experts);
        for expert in 0..spec.experts {
            let (gate, up, down) = self.expert_tensors(index, expert, spec)?;
            let gate_up = self.pack(&Stack::gated(gate, up), None, MLP);
            let down = self.pack(&Stack::stacked(vec![down]), None, MLP);
            mlps.push(GatedMlp { gate_up, down, intermediate: spec.intermediate });
        }
        Ok(Experts { spec, router, mlps })
    }

    /// One expert's gate, up and down, from its own tensors or from its share of the merged ones.
    fn expert_tensors(
        &self,
        layer: usize,
        expert: usize,
        spec: ExpertsSpec,
    ) -> Result<(Tensor, Tensor, Tensor), LoadError> {
        let (hidden, inner, count) = (self.spec.hidden, spec.intermediate, spec.experts);
        let share = |part, rows: usize, cols| -> Result<Option<Tensor>, LoadError> {
            let Some(merged) = self.names.find(self.checkpoint, Role::Layer(layer, part)) else {
                return Ok(None);
            };
            let merged = checked(merged, [count * rows, cols])?;
            Ok(Some(merged.slice_rows(expert * rows..(expert + 1) * rows)))
        };
        let own = |part, shape| self.tensor(Role::Expert { layer, expert, part }, shape);
        let down = match share(Part::MergedDown, hidden, inner)? {
            Some(down) => down,
            None => own(ExpertPart::Down, [hidden, inner])?,
        };
        if let Some(both) = share(Part::MergedGateUp, 2 * inner, hidden)? {
            let (gate, up) = split_gate_up(&both);
            return Ok((gate, up, down));
        }
        if let Some(gate) = share(Part::MergedGate, inner, hidden)? {
            let up = share(Part::MergedUp, inner, hidden)?;
            let up = up.map_or_else(|| own(ExpertPart::Up, [inner, hidden]), Ok)?;
            return Ok((gate, up, down));
        }
        Ok((own(ExpertPart::Gate, [inner, hidden])?, own(ExpertPart::Up, [inner, hidden])?, down))
    }

    /// Embedding and head; one matrix serves as both where they are tied.
    fn ends(&mut self) -> Result<(Embedding, Linear), LoadError> {
        let shape = [self.spec.vocab, self.spec.hidden];
        let embedding = self.tensor(Role::Embedding, shape)?;
        let own_head = self.names.find(self.checkpoint, Role::Head);
        match own_head.filter(|_| !self.spec.tied_embeddings) {
            Some(head) => {
                let head = checked(head, shape)?;
                Ok((Embedding::Own(embedding), self.pack(&Stack::stacked(vec![head]), None, HEAD)))
            }
            None => Ok((Embedding::Tied, self.pack(&Stack::stacked(vec![embedding]), None, HEAD))),
        }
    }

    fn tensor(&self, role: Role, shape: [usize; 2]) -> Result<Tensor, LoadError> {
        checked(self.names.tensor(self.checkpoint, role)?, shape)
    }

    fn linear(
        &mut self,
        weight: Role,
        bias: Role,
        shape: [usize; 2],
        width: Width,
    ) -> Result<Linear, LoadError> {
        let tensor = self.tensor(weight, shape)?;
        let bias = self.bias(bias, shape[0])?;
        Ok(self.pack(&Stack::stacked(vec![tensor]), bias, width))
    }

    fn pack(&mut self, stack: &Stack, bias: Option<Vec<f32>>, width: Width) -> Linear {
        let matrix = stack.pack(self.compute.pool(), self.options.precision, self.options.quantize);
        self.compute.reserve_cols(matrix.cols());
        Linear { matrix, bias, width }
    }

    fn vector(&self, role: Role, len: usize) -> Result<Vec<f32>, LoadError> {
        Ok(read_all(&self.tensor(role, [1, len])?))
    }

    /// A bias, where the checkpoint has one.
    fn bias(&self, role: Role, len: usize) -> Result<Option<Vec<f32>>, LoadError> {
        let Some(tensor) = self.names.find(self.checkpoint, role) else { return Ok(None) };
        Ok(Some(read_all(&checked(tensor, [1, len])?)))
    }
}

/// The tensor, if its shape is the expected one.
pub(crate) fn checked(tensor: Tensor, wanted: [usize; 2]) -> Result<Tensor, LoadError> {
    if [tensor.rows(), tensor.cols()] == wanted {
        return Ok(tensor);
    }
    Err(LoadError::Shape { name: tensor.name().to_owned(), found: tensor.shape().to_vec(), wanted })
}

pub(crate) fn split_gate_up(both: &Tensor) -> (Tensor, Tensor) {
    let half = both.rows() / 2;
    (both.slice_rows(0..half), both.slice_rows(half..2 * half))
}

pub(crate) fn read_all(tensor: &Tensor) -> Vec<f32> {
    let mut out = vec![0.0; tensor.cols()];
    tensor.read_f32(0, &mut out);
    out
}
