//! The one encoder forward pass: a ragged batch of whole texts in, a vector per token out.
//!
//! All tokens of all texts go through each matrix together, without padding; only attention looks at which text a row
//! belongs to. It relies on the caller for texts within [`EncoderSpec::max_tokens`]; nothing is allocated per pass, and no
//! row's result depends on another text.
//!
//! # Layout
//! - [`spec`]: what an encoder is. `families/encoders` makes it from a checkpoint.
//! - `names`, [`tensors`]: a checkpoint's tensors by what they do; `load` packs them. [`work`]: the memory a pass runs in.
//! - [`device`]: the same pass elsewhere than on the CPU's threads.
//! - [`pooling`]: from a text's vectors to one. [`score`]: from there to a relevance, for cross-encoders.

pub mod device;
mod load;
mod names;
pub mod pooling;
pub mod score;
pub mod spec;
pub mod tensors;
pub mod work;

use std::ops::Range;

use ropeway_kernels::Compute;
use ropeway_kernels::attention::whole::{DistanceBias, Whole, WholeParams, attend};
use ropeway_kernels::compute::ComputeSource;
use ropeway_kernels::elementwise::{LayerNorm, layer_norm};
use ropeway_kernels::matmul::{Epilogue, Output, matmul};
use ropeway_kernels::prepare::{Before, Prepare, Rows, prepare};
use ropeway_kernels::route::{HeadRows, Pairing, Rotation, rotate_heads};
use ropeway_weights::Tensor;

use crate::RopeTable;
use crate::layer::{Between, GatedMlp, Linear};
use crate::spec::RopeLayout;

pub use pooling::Pooling;
pub use spec::{DistanceBuckets, EncoderLayer, EncoderSpec, NormPlace};
pub use work::EncoderWork;

use score::Scorer;

/// A loaded encoder.
pub struct Encoder {
    /// What it is.
    pub spec: EncoderSpec,
    /// `[vocab, hidden]`, read from the file row by row.
    words: Tensor,
    /// `[first + max_tokens][hidden]`, or empty.
    positions: Vec<f32>,
    /// `[type][hidden]`, or empty.
    token_types: Vec<f32>,
    embedding_norm: NormWeights,
    layers: Vec<Layer>,
    final_norm: Option<NormWeights>,
    /// `[head][distance + max_tokens - 1]`, or empty.
    distances: Vec<f32>,
    ropes: Vec<RopeTable>,
    scorer: Option<Scorer>,
}

struct Layer {
    /// Absent where norms stand before and the embedding's has done it already.
    attention_norm: Option<NormWeights>,
    /// Queries, keys and values, in this order: one matrix, or one each.
    qkv: Vec<Linear>,
    output: Linear,
    mlp: Mlp,
    mlp_norm: NormWeights,
}

enum Mlp {
    Plain { up: Linear, down: Linear },
    Gated(GatedMlp),
}

/// A norm over a row: `(x - mean) / sqrt(variance + eps) * weight + bias`.
pub struct NormWeights {
    /// Per column.
    pub weight: Vec<f32>,
    /// Per column, where it has one.
    pub bias: Option<Vec<f32>>,
    /// Added to the variance.
    pub eps: f32,
}

impl NormWeights {
    fn by(&self) -> LayerNorm<'_> {
        LayerNorm { weight: &self.weight, bias: self.bias.as_deref(), eps: self.eps }
    }
}

/// One pass's input.
#[derive(Clone, Copy, Debug)]
pub struct Texts<'a> {
    /// Token ids of all texts, one text after the other; each below the vocabulary's size.
    pub tokens: &'a [u32],
    /// The type of each token, or empty where all are of type 0.
    pub types: &'a [u8],
    /// The rows of each text: adjacent, none empty, none longer than [`EncoderSpec::max_tokens`].
    pub rows: &'a [Range<usize>],
}

impl Texts<'_> {
    /// Whether a pass of at most `most` tokens can run them; the problem if not.
    pub fn check(&self, most: usize, spec: &EncoderSpec) -> Result<(), &'static str> {
        let is_kind = |kind: &u8| usize::from(*kind) < spec.token_types;
        let mut next = 0;
        let mut follows = |rows: &Range<usize>| rows.start == std::mem::replace(&mut next, rows.end);
        let problems = [
            (self.tokens.len() > most, "the pass has more tokens than it has memory for"),
            (
                self.tokens.iter().any(|token| *token as usize >= spec.vocab),
                "a token is outside the vocabulary",
            ),
            (!self.types.is_empty() && self.types.len() != self.tokens.len(), "not every token has a type"),
            (spec.token_types > 0 && !self.types.iter().all(is_kind), "a token's type is outside its table"),
            (self.rows.iter().any(Range::is_empty), "a text is empty"),
            (
                self.rows.iter().any(|rows| rows.len() > spec.max_tokens),
                "a text is longer than the model can take",
            ),
            (!self.rows.iter().all(&mut follows), "the texts don't follow each other"),
        ];
        if let Some((_, problem)) = problems.into_iter().find(|(is_wrong, _)| *is_wrong) {
            return Err(problem);
        }
        if next == self.tokens.len() { Ok(()) } else { Err("a token belongs to no text") }
    }
}

impl Encoder {
    /// Runs one pass. The texts' vectors are left in `work`.
    pub fn forward(&self, source: &mut dyn ComputeSource, texts: &Texts<'_>, work: &mut EncoderWork) {
        work.begin(texts, &self.spec);
        self.embed(source.compute(), texts, work);
        self.fill_angles(source.compute(), texts, work);
        for (index, layer) in self.layers.iter().enumerate() {
            source.start_layer();
            self.attention(source.compute(), texts, index, work);
            self.mlp(source.compute(), texts.tokens.len(), layer, work);
        }
        if let Some(norm) = &self.final_norm {
            self.norm_rows(source.compute(), texts.tokens.len(), norm, work);
        }
    }

    /// Whether it can tell how relevant a text is to another.
    pub fn can_score(&self) -> bool {
        self.scorer.is_some()
    }

    /// Bytes of packed weights.
    pub fn weight_bytes(&self) -> usize {
        self.linears().map(|linear| linear.matrix.bytes()).sum()
    }

    fn linears(&self) -> impl Iterator<Item = &Linear> {
        self.layers.iter().flat_map(|layer| {
            let (up, down) = layer.mlp.ends();
            layer.qkv.iter().chain([&layer.output, up, down])
        })
    }

    fn embed(&self, compute: &mut Compute, texts: &Texts<'_>, work: &mut EncoderWork) {
        let hidden = self.spec.hidden;
        let norm = self.embedding_norm.by();
        let places = &work.places;
        compute.for_each_row(&mut work.hidden[..texts.tokens.len() * hidden], hidden, &|row, out| {
            self.words.read_f32(texts.tokens[row] as usize, out);
            if let Some(first) = self.spec.first_position {
                add(out, &self.positions[(first + places[row] as usize) * hidden..]);
            }
            if self.spec.token_types > 0 {
                let kind = texts.types.get(row).map_or(0, |&kind| usize::from(kind));
                add(out, &self.token_types[kind * hidden..]);
            }
            layer_norm(out, norm);
        });
    }

    fn fill_angles(&self, compute: &mut Compute, texts: &Texts<'_>, work: &mut EncoderWork) {
        let places = &work.places;
        for (rope, angles) in self.ropes.iter().zip(&mut work.angles) {
            let pairs = rope.pairs();
            let rows = &mut angles[..texts.tokens.len() * 2 * pairs];
            compute.for_each_row(rows, 2 * pairs, &|row, out| {
                let (cos, sin) = out.split_at_mut(pairs);
                rope.fill(places[row] as usize, cos, sin);
            });
        }
    }

    fn attention(&self, compute: &mut Compute, texts: &Texts<'_>, index: usize, work: &mut EncoderWork) {
        let (layer, spec, rows) = (&self.layers[index], &self.spec, texts.tokens.len());
        self.ready(compute, rows, layer.attention_norm.as_ref(), &layer.qkv[0], work);
        let mut column = 0;
        for part in &layer.qkv {
            let product = part.product(&work.ready, rows, Epilogue::Store);
            let output = Output { data: &mut work.projections, stride: 3 * spec.width(), column };
            matmul(compute, &product, output);
            column += part.matrix.rows();
        }
        self.rotate(compute, rows, index, work);
        let whole = Whole {
            params: self.params(index),
            projections: &work.projections[..rows * 3 * spec.width()],
            texts: texts.rows,
        };
        attend(compute, &whole, &mut work.attended);
        let what = Prepare {
            source: &work.attended,
            stride: spec.width(),
            cols: spec.width(),
            rows: Rows::First(rows),
            before: Before::Nothing,
            width: layer.output.width,
        };
        prepare(compute, &what, &mut work.attended_ready);
        let product = layer.output.product(&work.attended_ready, rows, Epilogue::Add);
        matmul(compute, &product, Output { data: &mut work.hidden, stride: spec.hidden, column: 0 });
        if let (NormPlace::After, Some(norm)) = (spec.norms, &layer.attention_norm) {
            self.norm_rows(compute, rows, norm, work);
        }
    }

    fn params(&self, layer: usize) -> WholeParams<'_> {
        let bias = DistanceBias { values: &self.distances, longest: self.spec.max_tokens };
        WholeParams {
            heads: self.spec.heads,
            head_dim: self.spec.head_dim,
            scale: 1.0 / (self.spec.head_dim as f32).sqrt(),
            reach: self.spec.layers[layer].reach,
            bias: self.spec.distances.map(|_| bias),
        }
    }

    fn rotate(&self, compute: &mut Compute, rows: usize, layer: usize, work: &mut EncoderWork) {
        let Some(rope) = self.spec.layers[layer].rope else { return };
        let pairing = match self.spec.ropes[rope.0].layout {
            RopeLayout::Half => Pairing::Half,
            RopeLayout::Interleaved => Pairing::Interleaved,
        };
        let rotation = Rotation { angles: &work.angles[rope.0], pairs: self.ropes[rope.0].pairs(), pairing };
        let width = 3 * self.spec.width();
        let shape = HeadRows { stride: width, heads: 2 * self.spec.heads, dim: self.spec.head_dim };
        rotate_heads(compute, &mut work.projections[..rows * width], shape, rotation);
    }

    fn mlp(&self, compute: &mut Compute, rows: usize, layer: &Layer, work: &mut EncoderWork) {
        let hidden = self.spec.hidden;
        self.ready(compute, rows, Some(&layer.mlp_norm), layer.mlp.ends().0, work);
        let product = match &layer.mlp {
            Mlp::Plain { up, down } => {
                let stride = self.spec.intermediate;
                let product = up.product(&work.ready, rows, Epilogue::Store);
                matmul(compute, &product, Output { data: &mut work.inner, stride, column: 0 });
                let what = Prepare {
                    source: &work.inner,
                    stride,
                    cols: stride,
                    rows: Rows::First(rows),
                    before: Before::Activation(self.spec.activation),
                    width: down.width,
                };
                prepare(compute, &what, &mut work.inner_ready);
                down.product(&work.inner_ready, rows, Epilogue::Add)
            }
            Mlp::Gated(mlp) => {
                let product = mlp.gate_up.product(&work.ready, rows, Epilogue::Gate(self.spec.activation));
                let between = Between { values: &mut work.inner, ready: &mut work.inner_ready };
                let down = mlp.down_after(compute, &product, between);
                ropeway_kernels::matmul::Product { epilogue: Epilogue::Add, ..down }
            }
        };
        matmul(compute, &product, Output { data: &mut work.hidden, stride: hidden, column: 0 });
        if self.spec.norms == NormPlace::After {
            self.norm_rows(compute, rows, &layer.mlp_norm, work);
        }
    }

    /// The residual stream as `reader` reads it, normed on the way where norms stand before.
    fn ready(
        &self,
        compute: &mut Compute,
        rows: usize,
        norm: Option<&NormWeights>,
        reader: &Linear,
        work: &mut EncoderWork,
    ) {
        let norm = norm.filter(|_| self.spec.norms == NormPlace::Before);
        let what = Prepare {
            source: &work.hidden,
            stride: self.spec.hidden,
            cols: self.spec.hidden,
            rows: Rows::First(rows),
            before: norm.map_or(Before::Nothing, |norm| Before::LayerNorm(norm.by())),
            width: reader.width,
        };
        prepare(compute, &what, &mut work.ready);
    }

    fn norm_rows(&self, compute: &mut Compute, rows: usize, norm: &NormWeights, work: &mut EncoderWork) {
        let (hidden, by) = (self.spec.hidden, norm.by());
        compute.for_each_row(&mut work.hidden[..rows * hidden], hidden, &|_, row| layer_norm(row, by));
    }
}

impl Mlp {
    /// The matrix that reads the residual stream, and the one that writes it.
    fn ends(&self) -> (&Linear, &Linear) {
        match self {
            Self::Plain { up, down } => (up, down),
            Self::Gated(mlp) => (&mlp.gate_up, &mlp.down),
        }
    }
}

fn add(out: &mut [f32], row: &[f32]) {
    for (out, value) in out.iter_mut().zip(row) {
        *out += value;
    }
}
