//! From a checkpoint to an encoder's packed weights: find each tensor by its role, check its shape, pack it.

use ropeway_kernels::Compute;
use ropeway_kernels::activations::Width;
use ropeway_weights::{Checkpoint, Config, Tensor};
use serde_json::Value;

use super::names::{Names, Part, Role};
use super::score::{Bend, Scorer};
use super::{Encoder, EncoderSpec, Layer, Mlp, NormPlace, NormWeights, Pooling};
use crate::RopeTable;
use crate::layer::{GatedMlp, Linear};
use crate::load::{LoadError, LoadOptions, Progress};
use crate::stack::{Stack, gated_bias};
use crate::tensors::{checked, read_all, split_gate_up};

/// How finely the inputs of integer weights are quantised: what reads the residual stream, what reads attention's results
/// and what reads the inside of an MLP. Who asks for integers asks for speed: on the default model one byte everywhere leaves
/// a cosine of 0.998 to f32 at worst; two where the residual stream is large would leave 0.9992 and take 1.3 times as long.
const HIDDEN: Width = Width::Narrow;
const ATTENDED: Width = Width::Narrow;
const INNER: Width = Width::Narrow;

impl Encoder {
    /// Loads all weights of an encoder.
    pub fn load(
        checkpoint: &Checkpoint,
        spec: EncoderSpec,
        options: LoadOptions,
        compute: &mut Compute,
        progress: Progress<'_>,
    ) -> Result<Encoder, LoadError> {
        let mut loader = Loader { checkpoint, names: Names::of(checkpoint), spec: &spec, options, compute };
        let count = spec.layers.len();
        let mut layers = Vec::with_capacity(count);
        for index in 0..count {
            layers.push(loader.layer(index)?);
            progress(index + 1, count);
        }
        let words = loader.tensor(Role::Words, [spec.vocab, spec.hidden])?;
        let positions = loader.positions()?;
        let token_types = match spec.token_types {
            0 => Vec::new(),
            rows => read_rows(&loader.tensor(Role::TokenTypes, [rows, spec.hidden])?),
        };
        let embedding_norm = loader.norm(Role::EmbeddingNorm)?;
        let distances = loader.distances()?;
        let final_norm =
            (spec.norms == NormPlace::Before).then(|| loader.norm(Role::FinalNorm)).transpose()?;
        let scorer = loader.scorer()?;
        checkpoint.release_pages();
        let ropes = spec.ropes.iter().map(|rope| RopeTable::new(rope, spec.max_tokens)).collect();
        Ok(Encoder {
            spec,
            words,
            positions,
            token_types,
            embedding_norm,
            layers,
            final_norm,
            distances,
            ropes,
            scorer,
        })
    }
}

struct Loader<'a> {
    checkpoint: &'a Checkpoint,
    names: Names,
    spec: &'a EncoderSpec,
    options: LoadOptions,
    compute: &'a mut Compute,
}

impl Loader<'_> {
    fn layer(&mut self, index: usize) -> Result<Layer, LoadError> {
        let spec = self.spec;
        let role = |part| Role::Layer(index, part);
        // Where norms stand before, the first layer's may be left out: the embedding's has just been applied.
        let norm_left_out = spec.norms == NormPlace::Before
            && index == 0
            && self.names.find(self.checkpoint, role(Part::AttentionNorm)).is_none();
        let attention_norm = if norm_left_out { None } else { Some(self.norm(role(Part::AttentionNorm))?) };
        Ok(Layer {
            attention_norm,
            qkv: self.qkv(index)?,
            output: self.linear(role(Part::Output), [spec.hidden, spec.width()], ATTENDED)?,
            mlp: self.mlp(index)?,
            mlp_norm: self.norm(role(Part::MlpNorm))?,
        })
    }

    /// Queries, keys and values: one matrix where their forms allow it without widening, else one each.
    fn qkv(&mut self, index: usize) -> Result<Vec<Linear>, LoadError> {
        let (hidden, width) = (self.spec.hidden, self.spec.width());
        let role = |part| Role::Layer(index, part);
        if self.names.find(self.checkpoint, role(Part::Qkv)).is_some() {
            return Ok(vec![self.linear(role(Part::Qkv), [3 * width, hidden], HIDDEN)?]);
        }
        let (mut tensors, mut biases) = (Vec::new(), Vec::new());
        for part in [Part::Q, Part::K, Part::V] {
            tensors.push(self.tensor(role(part), [width, hidden])?);
            biases.push(self.bias(role(part), width)?.unwrap_or_else(|| vec![0.0; width]));
        }
        if tensors.iter().all(|tensor| tensor.form() == tensors[0].form()) {
            return Ok(vec![self.pack(&Stack::stacked(tensors), Some(biases.concat()), HIDDEN)]);
        }
        let parts = tensors.into_iter().zip(biases);
        Ok(parts.map(|(tensor, bias)| self.pack(&Stack::stacked(vec![tensor]), Some(bias), HIDDEN)).collect())
    }

    fn mlp(&mut self, index: usize) -> Result<Mlp, LoadError> {
        let (hidden, inner) = (self.spec.hidden, self.spec.intermediate);
        let role = |part| Role::Layer(index, part);
        let down = self.linear(role(Part::Down), [hidden, inner], INNER)?;
        if !self.spec.gated {
            return Ok(Mlp::Plain { up: self.linear(role(Part::Up), [inner, hidden], HIDDEN)?, down });
        }
        let both = self.names.find(self.checkpoint, role(Part::GateUp));
        let (gate, up, bias) = if let Some(both) = both {
            let (gate, up) = split_gate_up(&checked(both, [2 * inner, hidden])?);
            let bias = self.bias(role(Part::GateUp), 2 * inner)?;
            (gate, up, bias.map(|bias| gated_bias(&bias[..inner], &bias[inner..])))
        } else {
            let gate = self.tensor(role(Part::Gate), [inner, hidden])?;
            let up = self.tensor(role(Part::Up), [inner, hidden])?;
            let biases = self.bias(role(Part::Gate), inner)?.zip(self.bias(role(Part::Up), inner)?);
            (gate, up, biases.map(|(gate, up)| gated_bias(&gate, &up)))
        };
        let gate_up = self.pack(&Stack::gated(gate, up), bias, HIDDEN);
        Ok(Mlp::Gated(GatedMlp { gate_up, down, intermediate: inner }))
    }

    fn positions(&self) -> Result<Vec<f32>, LoadError> {
        let Some(first) = self.spec.first_position else { return Ok(Vec::new()) };
        let shape = [first + self.spec.max_tokens, self.spec.hidden];
        Ok(read_rows(&self.tensor(Role::Positions, shape)?))
    }

    /// The bias table spread out over all distances of the longest text.
    fn distances(&self) -> Result<Vec<f32>, LoadError> {
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
    fn scorer(&mut self) -> Result<Option<Scorer>, LoadError> {
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
        let bias = maybe(format!("{output}.bias"), 1)?.map_or(0.0, |bias| bias[0]);
        let dense_bias = maybe(format!("{dense}.bias"), hidden)?;
        let norm = maybe("head.norm.weight".to_owned(), hidden)?;
        let norm_bias = maybe("head.norm.bias".to_owned(), hidden)?;
        let output = vector(output_weight, hidden)?;
        let dense = Stack::stacked(vec![checked(dense_weight, [hidden, hidden])?]);
        let eps = self.spec.norm_eps;
        Ok(Some(Scorer {
            pooling: self.scorer_pooling(),
            dense: self.pack(&dense, dense_bias, HIDDEN),
            bend,
            norm: norm.map(|weight| NormWeights { weight, bias: norm_bias, eps }),
            output,
            bias,
        }))
    }

    fn scorer_pooling(&self) -> Pooling {
        let Config::HuggingFace(config) = self.checkpoint.config() else { return Pooling::First };
        match config.get("classifier_pooling").and_then(Value::as_str) {
            Some("mean") => Pooling::Mean,
            _ => Pooling::First,
        }
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

    fn linear(&mut self, role: Role, shape: [usize; 2], width: Width) -> Result<Linear, LoadError> {
        let tensor = self.tensor(role, shape)?;
        let bias = self.bias(role, shape[0])?;
        Ok(self.pack(&Stack::stacked(vec![tensor]), bias, width))
    }

    fn pack(&mut self, stack: &Stack, bias: Option<Vec<f32>>, width: Width) -> Linear {
        let matrix = stack.pack(self.compute.pool(), self.options.precision, self.options.quantize);
        self.compute.reserve_cols(matrix.cols());
        Linear { matrix, bias, width }
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
