//! An encoder's tensors by what they do, with their shapes checked against the specification.
//!
//! What loaders for every kind of hardware share: it finds, reads vectors and leaves matrices as the file has them.

use ropeway_weights::{Checkpoint, Config, Tensor};
use serde_json::Value;

use super::names::{Names, Part, Role};
use super::score::{Bend, ScoreEnd};
use super::{EncoderSpec, NormPlace, NormWeights, Pooling};
use crate::load::LoadError;
use crate::tensors::{checked, read_all, split_gate_up};

/// Finds the tensors of one checkpoint.
#[derive(Clone, Copy)]
pub struct EncoderTensors<'a> {
    checkpoint: &'a Checkpoint,
    names: Names,
    spec: &'a EncoderSpec,
}

/// A matrix, out of one tensor or several one under the other, and its bias.
pub struct Projection {
    /// The tensors.
    pub tensors: Vec<Tensor>,
    /// The bias of all of them.
    pub bias: Option<Vec<f32>>,
}

/// What lies before the first layer.
pub struct InputTensors {
    /// `[vocab, hidden]`.
    pub words: Tensor,
    /// `[first + max_tokens][hidden]`, or empty.
    pub positions: Vec<f32>,
    /// `[type][hidden]`, or empty.
    pub token_types: Vec<f32>,
    /// The norm on their sum.
    pub norm: NormWeights,
}

/// A layer.
pub struct LayerTensors {
    /// Absent where norms stand before and the embedding's has done it already.
    pub attention_norm: Option<NormWeights>,
    /// Queries, keys and values, in this order.
    pub qkv: Projection,
    /// From heads to the residual stream.
    pub output: Projection,
    /// The MLP.
    pub mlp: MlpTensors,
    /// The norm of the MLP.
    pub mlp_norm: NormWeights,
}

/// An MLP.
pub struct MlpTensors {
    /// The gate; absent where it has none.
    pub gate: Option<Projection>,
    /// Into the MLP.
    pub up: Projection,
    /// Out of it.
    pub down: Projection,
}

/// The head of a cross-encoder.
pub struct ScorerTensors {
    /// What it takes of a text.
    pub pooling: Pooling,
    /// Its first matrix.
    pub dense: Projection,
    /// What follows.
    pub end: ScoreEnd,
}

impl<'a> EncoderTensors<'a> {
    /// The tensors of a checkpoint that `spec` describes.
    pub fn new(checkpoint: &'a Checkpoint, spec: &'a EncoderSpec) -> Self {
        Self { checkpoint, names: Names::of(checkpoint), spec }
    }

    /// What lies before the first layer.
    pub fn inputs(&self) -> Result<InputTensors, LoadError> {
        let spec = self.spec;
        Ok(InputTensors {
            words: self.tensor(Role::Words, [spec.vocab, spec.hidden])?,
            positions: self.positions()?,
            token_types: match spec.token_types {
                0 => Vec::new(),
                rows => read_rows(&self.tensor(Role::TokenTypes, [rows, spec.hidden])?),
            },
            norm: self.norm(Role::EmbeddingNorm)?,
        })
    }

    /// One layer.
    pub fn layer(&self, index: usize) -> Result<LayerTensors, LoadError> {
        let spec = self.spec;
        let role = |part| Role::Layer(index, part);
        // Where norms stand before, the first layer's may be left out: the embedding's has just been applied.
        let norm_left_out = spec.norms == NormPlace::Before
            && index == 0
            && self.names.find(self.checkpoint, role(Part::AttentionNorm)).is_none();
        let attention_norm = if norm_left_out { None } else { Some(self.norm(role(Part::AttentionNorm))?) };
        Ok(LayerTensors {
            attention_norm,
            qkv: self.qkv(index)?,
            output: self.projection(role(Part::Output), [spec.hidden, spec.width()])?,
            mlp: self.mlp(index)?,
            mlp_norm: self.norm(role(Part::MlpNorm))?,
        })
    }

    /// The norm after the last layer, where norms stand before.
    pub fn final_norm(&self) -> Result<Option<NormWeights>, LoadError> {
        (self.spec.norms == NormPlace::Before).then(|| self.norm(Role::FinalNorm)).transpose()
    }

    /// The bias table spread out over all distances of the longest text: `[head][distance + max_tokens - 1]`, or empty.
    pub fn distances(&self) -> Result<Vec<f32>, LoadError> {
        let Some(buckets) = self.spec.distances else { return Ok(Vec::new()) };
        let (heads, longest) = (self.spec.heads, self.spec.max_tokens as isize);
        let table = read_rows(&self.tensor(Role::Distances, [buckets.buckets, heads])?);
        let spread = |head: usize| {
            let table = &table;
            (1 - longest..longest).map(move |distance| table[buckets.bucket(distance) * heads + head])
        };
        Ok((0..heads).flat_map(spread).collect())
    }

    /// The head of a cross-encoder: one score per text. Heads for anything else are left alone.
    pub fn scorer(&self) -> Result<Option<ScorerTensors>, LoadError> {
        let find = |name: &str| self.names.head(self.checkpoint, name);
        let hidden = self.spec.hidden;
        // Dense, output, what stands between: of RoBERTa and MPNet, BERT, ModernBERT, and GGUF.
        let heads = [
            ("classifier.dense", "classifier.out_proj", Bend::Tanh),
            ("pooler.dense", "classifier", Bend::Tanh),
            ("head.dense", "classifier", Bend::Gelu),
            ("cls", "cls.output", Bend::Tanh),
        ];
        let there = |dense: &str, output: &str| {
            Some((find(&format!("{dense}.weight"))?, find(&format!("{output}.weight"))?))
        };
        let head = heads.iter().find_map(|(dense, output, bend)| {
            there(dense, output).map(|tensors| (*dense, *output, *bend, tensors))
        });
        let Some((dense, output, bend, (dense_weight, output_weight))) = head else { return Ok(None) };
        if output_weight.rows() != 1 {
            return Ok(None);
        }
        let vector = |tensor: Tensor, len| checked(tensor, [1, len]).map(|tensor| read_all(&tensor));
        let maybe = |name: String, len| find(&name).map(|tensor| vector(tensor, len)).transpose();
        let norm_bias = maybe("head.norm.bias".to_owned(), hidden)?;
        let eps = self.spec.norm_eps;
        let norm = maybe("head.norm.weight".to_owned(), hidden)?;
        Ok(Some(ScorerTensors {
            pooling: self.scorer_pooling(),
            dense: Projection {
                tensors: vec![checked(dense_weight, [hidden, hidden])?],
                bias: maybe(format!("{dense}.bias"), hidden)?,
            },
            end: ScoreEnd {
                bend,
                norm: norm.map(|weight| NormWeights { weight, bias: norm_bias, eps }),
                output: vector(output_weight, hidden)?,
                bias: maybe(format!("{output}.bias"), 1)?.map_or(0.0, |bias| bias[0]),
            },
        }))
    }

    fn scorer_pooling(&self) -> Pooling {
        let Config::HuggingFace(config) = self.checkpoint.config() else { return Pooling::First };
        match config.get("classifier_pooling").and_then(Value::as_str) {
            Some("mean") => Pooling::Mean,
            _ => Pooling::First,
        }
    }

    fn qkv(&self, index: usize) -> Result<Projection, LoadError> {
        let (hidden, width) = (self.spec.hidden, self.spec.width());
        let role = |part| Role::Layer(index, part);
        if self.names.find(self.checkpoint, role(Part::Qkv)).is_some() {
            return self.projection(role(Part::Qkv), [3 * width, hidden]);
        }
        let (mut tensors, mut biases) = (Vec::new(), Vec::new());
        for part in [Part::Q, Part::K, Part::V] {
            tensors.push(self.tensor(role(part), [width, hidden])?);
            biases.extend(self.bias(role(part), width)?.unwrap_or_else(|| vec![0.0; width]));
        }
        Ok(Projection { tensors, bias: Some(biases) })
    }

    fn mlp(&self, index: usize) -> Result<MlpTensors, LoadError> {
        let (hidden, inner) = (self.spec.hidden, self.spec.intermediate);
        let role = |part| Role::Layer(index, part);
        let down = self.projection(role(Part::Down), [hidden, inner])?;
        let both = self.names.find(self.checkpoint, role(Part::GateUp)).filter(|_| self.spec.gated);
        let Some(both) = both else {
            let part = |part| self.projection(role(part), [inner, hidden]);
            let gate = self.spec.gated.then(|| part(Part::Gate)).transpose()?;
            return Ok(MlpTensors { gate, up: part(Part::Up)?, down });
        };
        let (gate, up) = split_gate_up(&checked(both, [2 * inner, hidden])?);
        let bias = self.bias(role(Part::GateUp), 2 * inner)?;
        let half = |tensor, bias: Option<&[f32]>| Projection {
            tensors: vec![tensor],
            bias: bias.map(<[f32]>::to_vec),
        };
        let gate = half(gate, bias.as_ref().map(|bias| &bias[..inner]));
        let up = half(up, bias.as_ref().map(|bias| &bias[inner..]));
        Ok(MlpTensors { gate: Some(gate), up, down })
    }

    fn positions(&self) -> Result<Vec<f32>, LoadError> {
        let Some(first) = self.spec.first_position else { return Ok(Vec::new()) };
        let shape = [first + self.spec.max_tokens, self.spec.hidden];
        Ok(read_rows(&self.tensor(Role::Positions, shape)?))
    }

    fn tensor(&self, role: Role, shape: [usize; 2]) -> Result<Tensor, LoadError> {
        checked(self.names.tensor(self.checkpoint, role)?, shape)
    }

    fn bias(&self, role: Role, len: usize) -> Result<Option<Vec<f32>>, LoadError> {
        let Some(tensor) = self.names.bias(self.checkpoint, role) else { return Ok(None) };
        Ok(Some(read_all(&checked(tensor, [1, len])?)))
    }

    fn norm(&self, role: Role) -> Result<NormWeights, LoadError> {
        let weight = read_all(&self.tensor(role, [1, self.spec.hidden])?);
        let bias = self.bias(role, self.spec.hidden)?;
        Ok(NormWeights { weight, bias, eps: self.spec.norm_eps })
    }

    fn projection(&self, role: Role, shape: [usize; 2]) -> Result<Projection, LoadError> {
        Ok(Projection { tensors: vec![self.tensor(role, shape)?], bias: self.bias(role, shape[0])? })
    }
}

/// All rows of a tensor, one after the other.
fn read_rows(tensor: &Tensor) -> Vec<f32> {
    let mut out = vec![0.0; tensor.rows() * tensor.cols()];
    for (row, values) in out.chunks_exact_mut(tensor.cols()).enumerate() {
        tensor.read_f32(row, values);
    }
    out
}
