//! From a specification to its plan: the one place that knows in which order a decoder's parts follow each other.

use ropeway_model::DecoderSpec;
use ropeway_model::spec::{ExpertsSpec, MlpSpec, QkNorm, RopeLayout};

use super::{
    Add, Form, HeadNormPlan, MatrixId, MatrixPlan, MatrixRole, Op, Plan, Results, RotationPlan, RowsOf, Slot,
    VectorId, VectorPlan, VectorRole, slices,
};

/// The plan of a model.
pub(super) fn build(spec: &DecoderSpec) -> Plan {
    let mut builder = Builder { spec, plan: Plan::empty(spec), rows: RowsOf::Tokens };
    builder.build();
    builder.plan
}

struct Builder<'a> {
    spec: &'a DecoderSpec,
    plan: Plan,
    /// What runs over these comes next.
    rows: RowsOf,
}

impl Builder<'_> {
    fn build(&mut self) {
        let spec = self.spec;
        let ropes: Vec<VectorId> = (0..spec.ropes.len())
            .map(|rope| {
                let pairs = spec.ropes[rope].dims / 2;
                self.vector(VectorRole::CosSin(rope), spec.context * 2 * pairs)
            })
            .collect();
        let embedding = self.matrix(MatrixRole::Embedding, [spec.vocab, spec.hidden], Results::F32);
        self.push(Op::Embed { table: embedding, scale: spec.embedding_scale });
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
        self.push(Op::Residual { add, norm });
        self.linear(head, Slot::Normed, Slot::Logits, self.rows);
    }

    fn push(&mut self, op: Op) {
        let ops = if self.rows == RowsOf::Picked { &mut self.plan.head } else { &mut self.plan.layers };
        ops.push(op);
    }

    /// Attention of a layer after `add` is added to the residual stream; what is to be added next.
    fn attention(&mut self, layer: usize, ropes: &[VectorId], add: Option<Add>) -> Add {
        let spec = self.spec;
        let norm = self.vector(VectorRole::AttentionNorm(layer), spec.hidden);
        self.push(Op::Residual { add, norm });
        let width = spec.q_width() + 2 * spec.kv_width();
        let qkv = self.matrix(MatrixRole::Qkv(layer), [width, spec.hidden], Results::F32);
        self.linear(qkv, Slot::Normed, Slot::Projections, self.rows);
        let bias = spec.attention.qkv_bias.then(|| self.vector(VectorRole::QkvBias(layer), width));
        let norms = spec.attention.qk_norm.map(|span| self.head_norms(layer, span));
        let rotation = spec.layers[layer].rope.map(|rope| {
            let RopeLayoutOf { pairs, layout } = rope_layout(spec, rope.0);
            RotationPlan { cos_sin: ropes[rope.0], pairs, layout }
        });
        self.push(Op::PrepareQkv { layer, bias, norms, rotation });
        let window = self.window(spec.layers[layer].window);
        let last = layer + 1 == spec.layers.len();
        let rows = if last { RowsOf::Picked } else { RowsOf::Tokens };
        self.push(Op::Attend { layer, window, rows });
        let attended = if last { self.pick() } else { Slot::Attended };
        let output = self.matrix(MatrixRole::Output(layer), [spec.hidden, spec.q_width()], Results::F32);
        self.linear(output, attended, Slot::Branch, self.rows);
        let bias =
            spec.attention.output_bias.then(|| self.vector(VectorRole::OutputBias(layer), spec.hidden));
        Add { product: Some(output), bias, post: self.post(VectorRole::PostAttentionNorm(layer)) }
    }

    /// From here on, only rows whose logits are wanted are computed: nothing reads the others any more once the last layer's keys and
    /// values are written. Where attention's results lie then.
    fn pick(&mut self) -> Slot {
        self.rows = RowsOf::Picked;
        self.push(Op::Pick);
        Slot::PickedAttended
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
        self.push(Op::Residual { add: Some(add), norm });
        let (product, bias) = match self.spec.layers[layer].mlp {
            MlpSpec::Dense { intermediate } => self.dense(layer, intermediate),
            MlpSpec::Experts(experts) => {
                self.experts(layer, norm, experts);
                (None, None)
            }
        };
        Add { product, bias, post: self.post(VectorRole::PostMlpNorm(layer)) }
    }

    /// A dense MLP; the product that it ends with, and the bias of that.
    fn dense(&mut self, layer: usize, width: usize) -> (Option<MatrixId>, Option<VectorId>) {
        let (hidden, rows, has_bias) = (self.spec.hidden, self.rows, self.spec.mlp_bias);
        let gate_up = self.matrix(MatrixRole::GateUp(layer), [2 * width, hidden], Results::Bf16);
        self.linear(gate_up, Slot::Normed, Slot::GateUp, rows);
        let bias = has_bias.then(|| self.vector(VectorRole::GateUpBias(layer), 2 * width));
        self.push(Op::Gate { width, bias, rows });
        let down = self.matrix(MatrixRole::Down(layer), [hidden, width], Results::F32);
        self.linear(down, Slot::Gated, Slot::Branch, rows);
        (Some(down), has_bias.then(|| self.vector(VectorRole::DownBias(layer), hidden)))
    }

    fn experts(&mut self, layer: usize, norm: VectorId, experts: ExpertsSpec) {
        let (hidden, width, rows) = (self.spec.hidden, experts.intermediate, RowsOf::Pairs(experts.top_k));
        let router = self.vector(VectorRole::Router(layer), experts.experts * hidden);
        self.push(Op::RouteExperts { router, norm, experts });
        let gate_up = self.matrix(MatrixRole::ExpertGateUp(layer), [2 * width, hidden], Results::Bf16);
        let down = self.matrix(MatrixRole::ExpertDown(layer), [hidden, width], Results::F32);
        for id in [gate_up, down] {
            let matrix = &mut self.plan.matrices[id.0];
            (matrix.copies, matrix.slices) = (experts.experts, 1);
        }
        self.linear(gate_up, Slot::Normed, Slot::GateUp, rows);
        self.push(Op::Gate { width, bias: None, rows });
        self.linear(down, Slot::Gated, Slot::ExpertResults, rows);
        self.push(Op::Combine { experts });
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
        self.push(Op::Linear { matrix, from, to, rows });
    }

    fn matrix(&mut self, role: MatrixRole, [outputs, inputs]: [usize; 2], results: Results) -> MatrixId {
        let slices = slices::plain([outputs, inputs], results);
        let form = Form::Bf16;
        self.plan.matrices.push(MatrixPlan { role, outputs, inputs, copies: 1, slices, results, form });
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
