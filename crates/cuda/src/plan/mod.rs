//! What a step computes, as plain data: the operations of a model in order, and the weights they read.
//!
//! ```text
//! DecoderSpec ── Plan::new ──> matrices and vectors (what is uploaded), operations (what is launched)
//! ```
//! A plan knows no addresses and no device: it can be printed, compared and tested anywhere. Every family becomes one through the same
//! few operations; what differs between them is which parts of an operation are there.

mod build;
mod slices;

use ropeway_model::DecoderSpec;
use ropeway_model::spec::{Activation, ExpertsSpec, QkNorm, RopeLayout};

pub use self::slices::packed_slices;
use crate::packed::{PackedForm, STRIP};

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

impl MatrixRole {
    /// Whether its results are added to the residual stream, by [`Op::Residual`].
    pub fn is_branch(self) -> bool {
        matches!(self, Self::Output(_) | Self::Down(_))
    }
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
    /// Pieces of its inputs that are summed apart and then added in order: decided by its shape and form alone, so that a row's sums never
    /// depend on the batch.
    pub slices: usize,
    /// The form of its results.
    pub results: Results,
    /// How its weights lie on the device.
    pub form: Form,
}

/// How a matrix lies on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// `[outputs][inputs]` bf16.
    Bf16,
    /// Small integers.
    Packed(PackedForm),
}

impl MatrixPlan {
    /// Changes how it lies on the device, and with it how its inputs are cut.
    pub(crate) fn set_form(&mut self, form: Form) {
        self.form = form;
        // An expert's matrices are in one piece: there are many of them.
        if matches!(form, Form::Packed(_)) && self.copies == 1 {
            self.slices = packed_slices([self.outputs, self.inputs], self.results);
        }
    }

    /// Strips of one copy, where it is packed.
    pub fn strips(&self) -> usize {
        self.outputs.div_ceil(STRIP)
    }

    /// Weights of all copies.
    pub fn values(&self) -> usize {
        self.copies * self.outputs * self.inputs
    }

    /// Bytes of all copies on the device.
    pub fn bytes(&self) -> usize {
        match self.form {
            Form::Bf16 => self.values() * 2,
            Form::Packed(form) => self.copies * form.bytes(self.outputs, self.inputs),
        }
    }
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
    CosSin(usize),
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
    PickedAttended,
    Branch,
    GateUp,
    Gated,
    Logits,
    ExpertResults,
}

/// What is added to the residual stream before a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Add {
    /// The product whose results it is; none where it is what experts' results were combined to.
    pub product: Option<MatrixId>,
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
    pub cos_sin: VectorId,
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
    Residual { add: Option<Add>, norm: VectorId },
    /// `to = matrix * from`.
    Linear { matrix: MatrixId, from: Slot, to: Slot, rows: RowsOf },
    /// `picked hidden, picked attended = hidden, attended`, of rows whose logits are wanted.
    Pick,
    /// Queries, and keys and values into their blocks.
    PrepareQkv {
        layer: usize,
        bias: Option<VectorId>,
        norms: Option<HeadNormPlan>,
        rotation: Option<RotationPlan>,
    },
    /// `attended = attention(queries)`. With `Picked` rows, prompts attend only for pieces that have some of them.
    Attend { layer: usize, window: usize, rows: RowsOf },
    /// `gated = activation(gate) * up`.
    Gate { width: usize, bias: Option<VectorId>, rows: RowsOf },
    /// Which experts compute which tokens.
    RouteExperts { router: VectorId, norm: VectorId, experts: ExpertsSpec },
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
    /// What runs over all tokens, up to the last layer's attention.
    pub layers: Vec<Op>,
    /// What runs over the rows whose logits are wanted: what follows the last layer's attention, and the vocabulary head.
    pub head: Vec<Op>,
    /// The windows that layers attend within; `None` sees all. Layers name them by index.
    pub windows: Vec<Option<usize>>,
    /// The non-linearity of every gate.
    pub activation: Activation,
}

impl Plan {
    /// The plan of a model.
    pub fn new(spec: &DecoderSpec) -> Self {
        build::build(spec)
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
        let matrices = self.matrices.iter().map(MatrixPlan::bytes);
        let vectors = self.vectors.iter().map(|vector| vector.len * 4);
        matrices.chain(vectors).map(aligned).sum()
    }

    /// The packed forms that matrices have, each once.
    pub fn packed_forms(&self) -> Vec<PackedForm> {
        let used = |form: &PackedForm| self.matrices.iter().any(|m| m.form == Form::Packed(*form));
        PackedForm::ALL.into_iter().filter(used).collect()
    }

    /// Bytes of the largest packed matrix of a layer as bf16: room for what the library multiplies.
    pub fn unpacked_bytes(&self) -> usize {
        let bytes = self.layers.iter().map(|op| match op {
            Op::Linear { matrix, rows: RowsOf::Tokens, .. } => match self.matrix(*matrix) {
                MatrixPlan { form: Form::Packed(_), outputs, inputs, .. } => outputs * inputs * 2,
                MatrixPlan { form: Form::Bf16, .. } => 0,
            },
            _ => 0,
        });
        bytes.max().unwrap_or(0)
    }

    /// Most slices of one length of a bf16 matrix whose results are added to the residual stream; 0 where none is cut so.
    pub fn branch_slices(&self) -> usize {
        let cut = |matrix: &&MatrixPlan| {
            let even = matrix.slices > 1 && matrix.inputs.is_multiple_of(matrix.slices * 64);
            even && matrix.role.is_branch() && matrix.form == Form::Bf16
        };
        self.matrices.iter().filter(cut).map(|matrix| matrix.slices).max().unwrap_or(0)
    }

    /// The most experts that a token goes to in any layer; 0 without experts.
    pub fn max_top_k(&self) -> usize {
        let experts = self.layers.iter().map(|op| match op {
            Op::RouteExperts { experts, .. } => experts.top_k,
            _ => 0,
        });
        experts.max().unwrap_or(0)
    }
}

/// Where the next weight begins after one of so many bytes.
pub fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(256)
}
