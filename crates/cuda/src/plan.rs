//! What a step computes, as plain data: the operations of a model in order, and the weights they read.
//!
//! ```text
//! DecoderSpec ── Plan::new ──> matrices and vectors (what is uploaded), operations (what is launched)
//! ```
//! A plan knows no addresses and no device: it can be printed, compared and tested anywhere. Every family becomes one through the same
//! few operations; what differs between them is which parts of an operation are there.

use ropeway_model::DecoderSpec;
use ropeway_model::spec::{Activation, ExpertsSpec, MlpSpec, QkNorm, RopeLayout};

/// Inputs up to which a product is computed in one piece, whatever its shape.
const SHORT: usize = 2048;

/// Outputs that one part of the device computes at a time, and how many such parts there are to keep busy (an H200 has 132
/// multiprocessors). What the number of slices depends on may never be the batch; that it fits this device only matters for speed.
const TILE: usize = 64;
const PARTS: usize = 132;

/// A weight matrix, by its index in [`Plan::matrices`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixId(pub usize);

/// A vector of weights, by its index in [`Plan::vectors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VectorId(pub usize);

/// What a matrix does; the number is its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixRole {
    /// Rows of tokens.
    Embedding,
    /// Logits; absent where the embedding serves as both.
    Head,
    /// Queries, keys and values.
    Qkv(usize),
    /// Attention's output.
    Output(usize),
    /// Gate and up, one under the other.
    GateUp(usize),
    /// Back to the residual stream.
    Down(usize),
    /// `GateUp` of every expert.
    ExpertGateUp(usize),
    /// `Down` of every expert.
    ExpertDown(usize),
}

/// A weight matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixPlan {
    /// What it does.
    pub role: MatrixRole,
    /// Its rows.
    pub outputs: usize,
    /// Its columns.
    pub inputs: usize,
    /// How many of the same shape follow each other: one per expert.
    pub copies: usize,
    /// Pieces of its inputs that are summed apart and then added in order: decided by its shape alone, so that a row's sums never depend
    /// on the batch.
    pub slices: usize,
    /// The form of its results.
    pub results: Results,
}

/// The form of a product's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Results {
    /// As they are summed.
    F32,
    /// Rounded.
    Bf16,
}

impl Results {
    /// Bytes of one.
    pub fn bytes(self) -> usize {
        match self {
            Results::F32 => 4,
            Results::Bf16 => 2,
        }
    }
}

/// What a vector does; the number is its layer, or the rope it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "they are the parts of the model of the same names")]
pub enum VectorRole {
    AttentionNorm(usize),
    QkvBias(usize),
    QueryNorm(usize),
    KeyNorm(usize),
    OutputBias(usize),
    PostAttentionNorm(usize),
    MlpNorm(usize),
    GateUpBias(usize),
    DownBias(usize),
    PostMlpNorm(usize),
    /// Kept in f32: routing decides which weights are used at all.
    Router(usize),
    FinalNorm,
    /// `[position][cosines | sines]`.
    Angles(usize),
}

/// A vector of weights in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorPlan {
    /// What it does.
    pub role: VectorRole,
    /// How many values it has.
    pub len: usize,
}

/// Where rows of values lie during a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the operations say what they hold")]
pub enum Slot {
    Normed,
    Projections,
    Attended,
    Branch,
    GateUp,
    Gated,
    Logits,
    ExpertResults,
}

/// What is added to the residual stream before a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Add {
    /// Added to the branch first.
    pub bias: Option<VectorId>,
    /// The norm that the branch passes.
    pub post: Option<VectorId>,
}

/// Which rows an operation computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsOf {
    /// Every token.
    Tokens,
    /// Tokens whose logits are wanted.
    Picked,
    /// Every pair of a token and one of its experts; so many per token.
    Pairs(usize),
}

/// A rotation of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationPlan {
    /// Its cosines and sines.
    pub angles: VectorId,
    /// Pairs of a head that turn.
    pub pairs: usize,
    /// Which values form a pair.
    pub layout: RopeLayout,
}

/// Norms on queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadNormPlan {
    /// Of queries.
    pub query: VectorId,
    /// Of keys.
    pub key: VectorId,
    /// What one norm spans.
    pub span: QkNorm,
}

/// One operation over all rows of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the formulas name the fields")]
pub enum Op {
    /// `hidden = embedding[token] * scale`.
    Embed { table: MatrixId, scale: f32 },
    /// `hidden += branch`; `normed = norm(hidden)`.
    Residual { add: Option<Add>, norm: VectorId, rows: RowsOf },
    /// `to = matrix * from`.
    Linear { matrix: MatrixId, from: Slot, to: Slot, rows: RowsOf },
    /// Queries, and keys and values into their blocks.
    Route {
        layer: usize,
        bias: Option<VectorId>,
        norms: Option<HeadNormPlan>,
        rotation: Option<RotationPlan>,
    },
    /// `attended = attention(queries)`.
    Attend { layer: usize, window: usize },
    /// `gated = activation(gate) * up`.
    Gate { width: usize, bias: Option<VectorId>, rows: RowsOf },
    /// Which experts compute which tokens.
    Choose { router: VectorId, norm: VectorId, experts: ExpertsSpec },
    /// `branch = sum of the experts' results`.
    Combine { experts: ExpertsSpec },
}

/// A model as operations and weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Its matrices.
    pub matrices: Vec<MatrixPlan>,
    /// Its vectors.
    pub vectors: Vec<VectorPlan>,
    /// What runs over all tokens.
    pub layers: Vec<Op>,
    /// What runs over the rows whose logits are wanted.
    pub head: Vec<Op>,
    /// The windows that layers attend within; `None` sees all. Layers name them by index.
    pub windows: Vec<Option<usize>>,
    /// The non-linearity of every gate.
    pub activation: Activation,
}

impl Plan {
    /// The plan of a model.
    pub fn new(spec: &DecoderSpec) -> Self {
        let mut builder = Builder { spec, plan: Self::empty(spec) };
        builder.build();
        builder.plan
    }

    fn empty(spec: &DecoderSpec) -> Self {
        Self {
            matrices: Vec::new(),
            vectors: Vec::new(),
            layers: Vec::new(),
            head: Vec::new(),
            windows: Vec::new(),
            activation: spec.activation,
        }
    }

    /// A matrix.
    pub fn matrix(&self, id: MatrixId) -> &MatrixPlan {
        &self.matrices[id.0]
    }

    /// Bytes of all weights on the device.
    pub fn weight_bytes(&self) -> usize {
        let matrices = self.matrices.iter().map(|matrix| matrix.copies * matrix.outputs * matrix.inputs * 2);
        let vectors = self.vectors.iter().map(|vector| vector.len * 4);
        matrices.chain(vectors).map(aligned).sum()
    }

    /// The most experts that a token goes to in any layer; 0 without experts.
    pub fn most_experts(&self) -> usize {
        let experts = self.layers.iter().map(|op| match op {
            Op::Choose { experts, .. } => experts.top_k,
            _ => 0,
        });
        experts.max().unwrap_or(0)
    }
}

/// Where the next weight begins after one of so many bytes.
pub fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(256)
}

/// Pieces into which a product's inputs are cut: as many as it takes for a product with few outputs and many inputs to keep the whole
/// device busy, a power of two.
fn slices(outputs: usize, inputs: usize) -> usize {
    if inputs <= SHORT {
        return 1;
    }
    let wanted = PARTS / outputs.div_ceil(TILE).max(1);
    if wanted < 2 { 1 } else { (1 << wanted.ilog2()).min(4) }
}

struct Builder<'a> {
    spec: &'a DecoderSpec,
    plan: Plan,
}

impl Builder<'_> {
    fn build(&mut self) {
        let spec = self.spec;
        let ropes: Vec<VectorId> = (0..spec.ropes.len())
            .map(|rope| {
                let pairs = spec.ropes[rope].dims / 2;
                self.vector(VectorRole::Angles(rope), spec.context * 2 * pairs)
            })
            .collect();
        let embedding = self.matrix(MatrixRole::Embedding, [spec.vocab, spec.hidden], Results::F32);
        self.plan.layers.push(Op::Embed { table: embedding, scale: spec.embedding_scale });
        let mut add = None;
        for layer in 0..spec.layers.len() {
            let attended = self.attention(layer, &ropes, add);
            add = Some(self.mlp(layer, attended));
        }
        let norm = self.vector(VectorRole::FinalNorm, spec.hidden);
        let head = if spec.tied_embeddings {
            embedding
        } else {
            self.matrix(MatrixRole::Head, [spec.vocab, spec.hidden], Results::F32)
        };
        let rows = RowsOf::Picked;
        self.plan.head.push(Op::Residual { add, norm, rows });
        self.plan.head.push(Op::Linear { matrix: head, from: Slot::Normed, to: Slot::Logits, rows });
    }

    /// Attention of a layer after `add` is added to the residual stream; what is to be added next.
    fn attention(&mut self, layer: usize, ropes: &[VectorId], add: Option<Add>) -> Add {
        let spec = self.spec;
        let norm = self.vector(VectorRole::AttentionNorm(layer), spec.hidden);
        self.plan.layers.push(Op::Residual { add, norm, rows: RowsOf::Tokens });
        let width = spec.q_width() + 2 * spec.kv_width();
        let qkv = self.matrix(MatrixRole::Qkv(layer), [width, spec.hidden], Results::F32);
        self.linear(qkv, Slot::Normed, Slot::Projections, RowsOf::Tokens);
        let bias = spec.attention.qkv_bias.then(|| self.vector(VectorRole::QkvBias(layer), width));
        let norms = spec.attention.qk_norm.map(|span| self.head_norms(layer, span));
        let rotation = spec.layers[layer].rope.map(|rope| {
            let RopeLayoutOf { pairs, layout } = rope_layout(spec, rope.0);
            RotationPlan { angles: ropes[rope.0], pairs, layout }
        });
        self.plan.layers.push(Op::Route { layer, bias, norms, rotation });
        let window = self.window(spec.layers[layer].window);
        self.plan.layers.push(Op::Attend { layer, window });
        let output = self.matrix(MatrixRole::Output(layer), [spec.hidden, spec.q_width()], Results::F32);
        self.linear(output, Slot::Attended, Slot::Branch, RowsOf::Tokens);
        let bias =
            spec.attention.output_bias.then(|| self.vector(VectorRole::OutputBias(layer), spec.hidden));
        Add { bias, post: self.post(VectorRole::PostAttentionNorm(layer)) }
    }

    fn head_norms(&mut self, layer: usize, span: QkNorm) -> HeadNormPlan {
        let spec = self.spec;
        let (query, key) = match span {
            QkNorm::PerHead => (spec.head_dim, spec.head_dim),
            QkNorm::WholeRow => (spec.q_width(), spec.kv_width()),
        };
        let query = self.vector(VectorRole::QueryNorm(layer), query);
        HeadNormPlan { query, key: self.vector(VectorRole::KeyNorm(layer), key), span }
    }

    fn mlp(&mut self, layer: usize, add: Add) -> Add {
        let norm = self.vector(VectorRole::MlpNorm(layer), self.spec.hidden);
        self.plan.layers.push(Op::Residual { add: Some(add), norm, rows: RowsOf::Tokens });
        let bias = match self.spec.layers[layer].mlp {
            MlpSpec::Dense { intermediate } => self.dense(layer, intermediate),
            MlpSpec::Experts(experts) => {
                self.experts(layer, norm, experts);
                None
            }
        };
        Add { bias, post: self.post(VectorRole::PostMlpNorm(layer)) }
    }

    /// A dense MLP; the bias of its result.
    fn dense(&mut self, layer: usize, width: usize) -> Option<VectorId> {
        let (hidden, rows, has_bias) = (self.spec.hidden, RowsOf::Tokens, self.spec.mlp_bias);
        let gate_up = self.matrix(MatrixRole::GateUp(layer), [2 * width, hidden], Results::Bf16);
        self.linear(gate_up, Slot::Normed, Slot::GateUp, rows);
        let bias = has_bias.then(|| self.vector(VectorRole::GateUpBias(layer), 2 * width));
        self.plan.layers.push(Op::Gate { width, bias, rows });
        let down = self.matrix(MatrixRole::Down(layer), [hidden, width], Results::F32);
        self.linear(down, Slot::Gated, Slot::Branch, rows);
        has_bias.then(|| self.vector(VectorRole::DownBias(layer), hidden))
    }

    fn experts(&mut self, layer: usize, norm: VectorId, experts: ExpertsSpec) {
        let (hidden, width, rows) = (self.spec.hidden, experts.intermediate, RowsOf::Pairs(experts.top_k));
        let router = self.vector(VectorRole::Router(layer), experts.experts * hidden);
        self.plan.layers.push(Op::Choose { router, norm, experts });
        let gate_up = self.matrix(MatrixRole::ExpertGateUp(layer), [2 * width, hidden], Results::Bf16);
        let down = self.matrix(MatrixRole::ExpertDown(layer), [hidden, width], Results::F32);
        for id in [gate_up, down] {
            let matrix = &mut self.plan.matrices[id.0];
            (matrix.copies, matrix.slices) = (experts.experts, 1);
        }
        self.linear(gate_up, Slot::Normed, Slot::GateUp, rows);
        self.plan.layers.push(Op::Gate { width, bias: None, rows });
        self.linear(down, Slot::Gated, Slot::ExpertResults, rows);
        self.plan.layers.push(Op::Combine { experts });
    }

    fn post(&mut self, role: VectorRole) -> Option<VectorId> {
        self.spec.post_norms.then(|| self.vector(role, self.spec.hidden))
    }

    fn window(&mut self, window: Option<usize>) -> usize {
        // A window as long as the context hides nothing.
        let window = window.filter(|window| *window < self.spec.context);
        let known = self.plan.windows.iter().position(|known| *known == window);
        known.unwrap_or_else(|| {
            self.plan.windows.push(window);
            self.plan.windows.len() - 1
        })
    }

    fn linear(&mut self, matrix: MatrixId, from: Slot, to: Slot, rows: RowsOf) {
        self.plan.layers.push(Op::Linear { matrix, from, to, rows });
    }

    fn matrix(&mut self, role: MatrixRole, [outputs, inputs]: [usize; 2], results: Results) -> MatrixId {
        let slices = if results == Results::F32 { slices(outputs, inputs) } else { 1 };
        self.plan.matrices.push(MatrixPlan { role, outputs, inputs, copies: 1, slices, results });
        MatrixId(self.plan.matrices.len() - 1)
    }

    fn vector(&mut self, role: VectorRole, len: usize) -> VectorId {
        self.plan.vectors.push(VectorPlan { role, len });
        VectorId(self.plan.vectors.len() - 1)
    }
}

struct RopeLayoutOf {
    pairs: usize,
    layout: RopeLayout,
}

fn rope_layout(spec: &DecoderSpec, rope: usize) -> RopeLayoutOf {
    RopeLayoutOf { pairs: spec.ropes[rope].dims / 2, layout: spec.ropes[rope].layout }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_products_with_few_outputs_are_cut() {
        assert_eq!(slices(576, 1536), 1, "135M down");
        assert_eq!(slices(1536, 8960), 4, "1.5B down");
        assert_eq!(slices(1536, 1536), 1, "1.5B output");
        assert_eq!(slices(4096, 14336), 2, "8B down");
        assert_eq!(slices(4096, 4096), 2, "8B output");
        assert_eq!(slices(6144, 4096), 1, "8B qkv");
        assert_eq!(slices(128_256, 4096), 1, "8B head");
    }
}
