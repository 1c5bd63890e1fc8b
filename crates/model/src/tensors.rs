//! A decoder's tensors by what they do, with their shapes checked against the specification.
//!
//! What loaders for every kind of hardware share: files name and group tensors in many ways (fused or apart, merged experts or
//! single ones), and this is where that ends. It reads nothing but vectors; how matrices are packed is the loader's business.

use ropeway_weights::{Checkpoint, Tensor};

use crate::load::LoadError;
use crate::names::{ExpertPart, Part, Role, TensorNames};
use crate::spec::{DecoderSpec, ExpertsSpec, QkNorm};

/// Finds the tensors of one checkpoint.
#[derive(Clone, Copy)]
pub struct DecoderTensors<'a> {
    checkpoint: &'a Checkpoint,
    names: TensorNames,
    spec: &'a DecoderSpec,
}

/// Queries, keys and values, in this order: one tensor, or one each.
pub struct QkvTensors {
    /// The projections.
    pub tensors: Vec<Tensor>,
    /// The biases one after the other, if any of them is not zero.
    pub bias: Option<Vec<f32>>,
}

/// The norms on queries and keys.
pub struct HeadNormWeights {
    /// Of queries.
    pub query: Vec<f32>,
    /// Of keys.
    pub key: Vec<f32>,
}

/// A gated MLP's projections.
pub struct GatedTensors {
    /// `[intermediate, hidden]`.
    pub gate: Tensor,
    /// `[intermediate, hidden]`.
    pub up: Tensor,
    /// `[hidden, intermediate]`.
    pub down: Tensor,
}

/// Where token rows come from, and where logits do.
pub struct EndTensors {
    /// `[vocab, hidden]`.
    pub embedding: Tensor,
    /// `[vocab, hidden]`; `None` where the embedding serves as both.
    pub head: Option<Tensor>,
}

impl<'a> DecoderTensors<'a> {
    /// The tensors of a checkpoint that `spec` describes.
    pub fn new(checkpoint: &'a Checkpoint, spec: &'a DecoderSpec) -> Self {
        Self { checkpoint, names: TensorNames::of(checkpoint), spec }
    }

    /// A tensor the model cannot do without.
    pub fn tensor(&self, role: Role, shape: [usize; 2]) -> Result<Tensor, LoadError> {
        checked(self.names.tensor(self.checkpoint, role)?, shape)
    }

    /// A vector the model cannot do without.
    pub fn vector(&self, role: Role, len: usize) -> Result<Vec<f32>, LoadError> {
        Ok(read_all(&self.tensor(role, [1, len])?))
    }

    /// A bias, where the checkpoint has one.
    pub fn bias(&self, role: Role, len: usize) -> Result<Option<Vec<f32>>, LoadError> {
        let Some(tensor) = self.names.find(self.checkpoint, role) else { return Ok(None) };
        Ok(Some(read_all(&checked(tensor, [1, len])?)))
    }

    /// The norms on queries and keys of a layer, if the model has them.
    pub fn head_norms(&self, layer: usize) -> Result<Option<HeadNormWeights>, LoadError> {
        let spec = self.spec;
        let (q, k) = match spec.attention.qk_norm {
            None => return Ok(None),
            Some(QkNorm::PerHead) => (spec.head_dim, spec.head_dim),
            Some(QkNorm::WholeRow) => (spec.q_width(), spec.kv_width()),
        };
        let query = self.vector(Role::Layer(layer, Part::QNorm), q)?;
        let key = self.vector(Role::Layer(layer, Part::KNorm), k)?;
        Ok(Some(HeadNormWeights { query, key }))
    }

    /// A layer's queries, keys and values.
    pub fn qkv(&self, layer: usize) -> Result<QkvTensors, LoadError> {
        let spec = self.spec;
        let (hidden, q, kv) = (spec.hidden, spec.q_width(), spec.kv_width());
        let role = |part| Role::Layer(layer, part);
        if let Some(fused) = self.names.find(self.checkpoint, role(Part::Qkv)) {
            let tensor = checked(fused, [q + 2 * kv, hidden])?;
            return Ok(QkvTensors {
                tensors: vec![tensor],
                bias: self.bias(role(Part::QkvBias), q + 2 * kv)?,
            });
        }
        let (mut tensors, mut biases) = (Vec::new(), Vec::new());
        for (weight, bias, rows) in
            [(Part::Q, Part::QBias, q), (Part::K, Part::KBias, kv), (Part::V, Part::VBias, kv)]
        {
            tensors.push(self.tensor(role(weight), [rows, hidden])?);
            biases.extend(self.bias(role(bias), rows)?.unwrap_or_else(|| vec![0.0; rows]));
        }
        let has_bias = biases.iter().any(|&bias| bias != 0.0);
        Ok(QkvTensors { tensors, bias: has_bias.then_some(biases) })
    }

    /// A layer's dense MLP.
    pub fn gated(&self, layer: usize, intermediate: usize) -> Result<GatedTensors, LoadError> {
        let role = |part| Role::Layer(layer, part);
        let hidden = self.spec.hidden;
        let down = self.tensor(role(Part::Down), [hidden, intermediate])?;
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
        Ok(GatedTensors { gate, up, down })
    }

    /// One expert's gate, up and down, from its own tensors or from its share of the merged ones.
    pub fn expert(&self, layer: usize, expert: usize, spec: ExpertsSpec) -> Result<GatedTensors, LoadError> {
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
            return Ok(GatedTensors { gate, up, down });
        }
        if let Some(gate) = share(Part::MergedGate, inner, hidden)? {
            let up = share(Part::MergedUp, inner, hidden)?;
            let up = up.map_or_else(|| own(ExpertPart::Up, [inner, hidden]), Ok)?;
            return Ok(GatedTensors { gate, up, down });
        }
        let (gate, up) = (own(ExpertPart::Gate, [inner, hidden])?, own(ExpertPart::Up, [inner, hidden])?);
        Ok(GatedTensors { gate, up, down })
    }

    /// Embedding and head.
    pub fn ends(&self) -> Result<EndTensors, LoadError> {
        let shape = [self.spec.vocab, self.spec.hidden];
        let embedding = self.tensor(Role::Embedding, shape)?;
        let own = self.names.find(self.checkpoint, Role::Head).filter(|_| !self.spec.tied_embeddings);
        Ok(EndTensors { embedding, head: own.map(|head| checked(head, shape)).transpose()? })
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
