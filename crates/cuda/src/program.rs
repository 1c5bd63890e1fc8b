//! A plan on a device: each operation becomes launches. A match over operations, nothing else. `experts`: those of mixtures of experts.

mod experts;

use std::ops::Range;

use ropeway_executor::Batch;
use ropeway_model::DecoderSpec;
use ropeway_model::spec::{QkNorm, RopeLayout};

use crate::attention::DecodeStrategy;
use crate::blas::Operands;
use crate::driver::{Address, Buffer, LaunchShape, Stream};
use crate::error::CudaError;
use crate::kernels::{
    Attend, Embed, Gate, Kernels, Pick, PrepareQkv, PrepareQkvShape, Residual, activation_kind,
};
use crate::packed::{EmbedPacked, PackedForm};
use crate::plan::{Add, Form, HeadNormPlan, MatrixId, Op, Plan, RotationPlan, RowsOf, Slot, VectorId};
use crate::products::{ProductKey, Products, Summands};
use crate::sections::{Filler, Sections, StepKind};
use crate::shape::{ModelShape, RowClass, StepShape};
use crate::weights::Weights;
use crate::workspace::Workspace;

/// Everything that launches need to know.
pub struct Program {
    /// Where they are queued.
    pub stream: Stream,
    /// What is launched.
    pub kernels: Kernels,
    /// The model.
    pub plan: Plan,
    /// Its constants.
    pub constants: ModelConstants,
    /// Its sizes.
    pub model: ModelShape,
    /// The sizes of a step.
    pub step: StepShape,
    /// Weights.
    pub weights: Weights,
    /// Values.
    pub workspace: Workspace,
    /// What they lie in.
    pub(crate) _buffer: Buffer,
    /// Keys and values.
    pub kv: Buffer,
    /// Blocks of keys and values.
    pub blocks: usize,
    /// How products are computed.
    pub products: Products,
}

/// Numbers of the model that kernels take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelConstants {
    /// Of every norm.
    pub eps: f32,
    /// What `q . k` is multiplied by.
    pub scale: f32,
    /// Cap of attention's scores; 0 for none.
    pub score_cap: f32,
    /// Cap of logits; 0 for none.
    pub logit_cap: f32,
}

impl ModelConstants {
    /// The constants of a model.
    pub fn new(spec: &DecoderSpec) -> Self {
        Self {
            eps: spec.norm.eps,
            scale: spec.attention.scale,
            score_cap: spec.attention.softcap.unwrap_or(0.0),
            logit_cap: spec.logit_softcap.unwrap_or(0.0),
        }
    }
}

fn blocks(grid: [usize; 3], threads: u32, shared_bytes: usize) -> LaunchShape {
    LaunchShape { grid: grid.map(|side| side as u32), threads, shared_bytes }
}

impl Program {
    /// Where the arrays of a step of a class lie.
    pub(crate) fn sections(&self, class: RowClass) -> Sections {
        Sections::new(&self.model, &self.step, class)
    }

    /// Fills a step's arrays on the host; `ranges` gets the words that are used.
    pub(crate) fn fill(
        &self,
        batch: &Batch,
        words: &mut [u32],
        ranges: &mut Vec<Range<usize>>,
    ) -> Result<StepKind, CudaError> {
        let sections = self.sections(RowClass::of(batch.tokens.len()));
        Filler::fill(sections, &self.plan.windows, words, batch, ranges).map_err(CudaError::Step)
    }

    /// What kind of step a batch makes.
    pub fn kind_of(&self, batch: &Batch) -> Result<StepKind, CudaError> {
        let words = self.sections(RowClass::of(batch.tokens.len())).bytes() / 4;
        self.fill(batch, &mut vec![0; words], &mut Vec::new())
    }

    /// Queues all layers for a step.
    pub fn layers(&self, filled: StepKind) -> Result<(), CudaError> {
        self.layers_where(filled, |_| true)
    }

    /// Queues some of the layers' operations: what they cost apart from the others.
    pub fn layers_where(&self, filled: StepKind, chosen: impl Fn(&Op) -> bool) -> Result<(), CudaError> {
        let sections = self.sections(filled.class);
        let run = Run { program: self, class: filled.class, filled, sections, hidden: self.workspace.hidden };
        self.plan.layers.iter().filter(|op| chosen(op)).try_for_each(|op| run.op(op))
    }

    /// Queues the head for a class of rows.
    pub fn head(&self, class: RowClass) -> Result<(), CudaError> {
        self.head_where(class, |_| true)
    }

    /// Queues what the head does before its product: the residual stream of picked rows, normed.
    pub fn head_norm(&self, class: RowClass) -> Result<(), CudaError> {
        self.head_where(class, |op| !matches!(op, Op::Linear { to: Slot::Logits, .. }))
    }

    fn head_where(&self, class: RowClass, chosen: impl Fn(&Op) -> bool) -> Result<(), CudaError> {
        let sections = self.sections(class);
        let filled = StepKind { class, prompts: false, decodes: DecodeStrategy::None };
        let run = Run { program: self, class, filled, sections, hidden: self.workspace.picked_hidden };
        self.plan.head.iter().filter(|op| chosen(op)).try_for_each(|op| run.op(op))
    }

    /// Where a layer's keys and values lie.
    fn layer_kv(&self, layer: usize) -> Address {
        self.kv.address().plus(layer * self.blocks * self.model.layer_block_bytes())
    }
}

/// The launches of one class.
struct Run<'a> {
    program: &'a Program,
    class: RowClass,
    filled: StepKind,
    sections: Sections,
    /// The residual stream of its rows.
    hidden: Address,
}

impl Run<'_> {
    fn op(&self, op: &Op) -> Result<(), CudaError> {
        match *op {
            Op::Embed { table, scale } => self.embed(table, scale),
            Op::Residual { add, norm } => self.residual(add, norm),
            Op::Linear { matrix, from, to, rows: RowsOf::Pairs(top_k) } => {
                self.expert_linear(matrix, from, to, top_k)
            }
            Op::Linear { matrix, from, to, .. } => self.linear(matrix, from, to),
            Op::Pick => self.pick(),
            Op::PrepareQkv { layer, bias, norms, rotation } => self.prepare_qkv(layer, bias, norms, rotation),
            Op::Attend { layer, window, rows } => self.attend(layer, window, rows),
            Op::Gate { width, bias, rows } => self.gate(width, bias, rows),
            Op::RouteExperts { router, norm, experts } => self.route_experts(router, norm, experts),
            Op::Combine { experts } => self.combine(experts),
        }
    }

    fn array(&self, word: usize) -> Address {
        self.program.workspace.arrays.plus(word * 4)
    }

    fn rows(&self) -> usize {
        self.class.rows()
    }

    fn embed(&self, table: MatrixId, scale: f32) -> Result<(), CudaError> {
        let Program { stream, kernels, model, weights, workspace, plan, .. } = self.program;
        if let Form::Packed(form) = plan.matrix(table).form {
            return self.embed_packed(table, form, scale);
        }
        let arguments = Embed {
            tokens: self.array(self.sections.tokens()),
            chosen: workspace.chosen,
            table: weights.matrix(table),
            hidden: workspace.hidden,
            width: model.hidden as u32,
            vocab: model.vocab as u32,
            scale,
        };
        Ok(stream.launch(&kernels.embed, blocks([self.rows(), 1, 1], 128, 0), &arguments)?)
    }

    fn embed_packed(&self, table: MatrixId, form: PackedForm, scale: f32) -> Result<(), CudaError> {
        let Program { stream, kernels, model, weights, workspace, .. } = self.program;
        let at = weights.matrix(table);
        let arguments = EmbedPacked {
            tokens: self.array(self.sections.tokens()),
            chosen: workspace.chosen,
            table: at,
            strip_scales: at.plus(form.records_bytes(model.vocab, model.hidden)),
            hidden: workspace.hidden,
            width: model.hidden as u32,
            vocab: model.vocab as u32,
            scale,
        };
        let embed = &kernels.products.packed(form).embed;
        Ok(stream.launch(embed, blocks([self.rows(), 1, 1], 128, 0), &arguments)?)
    }

    fn residual(&self, add: Option<Add>, norm: VectorId) -> Result<(), CudaError> {
        let Program { stream, kernels, model, weights, workspace, constants, .. } = self.program;
        let branch = add.map(|add| self.branch(add));
        let arguments = Residual {
            hidden: self.hidden,
            branch: branch.map_or(Address::NULL, |branch| branch.first),
            bias: weights.vector(add.and_then(|add| add.bias)),
            post: weights.vector(add.and_then(|add| add.post)),
            weight: weights.vector(Some(norm)),
            out: workspace.normed,
            width: model.hidden as u32,
            slices: branch.map_or(0, |branch| branch.count as u32),
            fours: branch.map_or(0, |branch| branch.stride as u32 / 4),
            eps: constants.eps,
        };
        let shape = blocks([self.rows(), 1, 1], kernels.row_threads, 0);
        Ok(stream.launch(&kernels.residual, shape, &arguments)?)
    }

    /// Where the summands of a branch lie.
    fn branch(&self, add: Add) -> Summands {
        let Program { workspace, products, plan, .. } = self.program;
        let whole = Summands { first: workspace.branch, count: 1, stride: 0 };
        let results =
            |product| products.results(ProductKey::new(plan.matrix(product), self.class), whole.first);
        add.product.map_or(whole, results)
    }

    fn pick(&self) -> Result<(), CudaError> {
        let Program { stream, kernels, model, workspace, .. } = self.program;
        let arguments = Pick {
            picked: self.array(self.sections.picked()),
            hidden: workspace.hidden,
            attended: workspace.attended,
            picked_hidden: workspace.picked_hidden,
            picked_attended: workspace.picked_attended,
            width: model.hidden as u32,
            queries: model.queries() as u32,
        };
        Ok(stream.launch(&kernels.pick, blocks([self.rows(), 1, 1], 256, 0), &arguments)?)
    }

    fn linear(&self, matrix: MatrixId, from: Slot, to: Slot) -> Result<(), CudaError> {
        let Program { stream, kernels, weights, workspace, products, plan, .. } = self.program;
        let key = ProductKey::new(plan.matrix(matrix), self.class);
        let operands = Operands { w: weights.matrix(matrix), x: workspace.slot(from), y: workspace.slot(to) };
        products.run(stream, &kernels.products, key, operands)
    }

    fn prepare_qkv(
        &self,
        layer: usize,
        bias: Option<VectorId>,
        norms: Option<HeadNormPlan>,
        rotation: Option<RotationPlan>,
    ) -> Result<(), CudaError> {
        let Program { stream, kernels, model, weights, workspace, constants, .. } = self.program;
        let arguments = PrepareQkv {
            projections: workspace.projections,
            bias: weights.vector(bias),
            query_norm: weights.vector(norms.map(|norms| norms.query)),
            key_norm: weights.vector(norms.map(|norms| norms.key)),
            cos_sin: weights.vector(rotation.map(|rotation| rotation.cos_sin)),
            positions: self.array(self.sections.positions()),
            slots: self.array(self.sections.slots()),
            queries: workspace.queries,
            kv: self.program.layer_kv(layer),
            heads: model.heads as u32,
            kv_heads: model.kv_heads as u32,
            head_dim: model.head_dim as u32,
            pairs: rotation.map_or(0, |rotation| rotation.pairs as u32),
            interleaved: u32::from(rotation.is_some_and(|r| r.layout == RopeLayout::Interleaved)),
            whole: u32::from(norms.is_some_and(|norms| norms.span == QkNorm::WholeRow)),
            eps: constants.eps,
        };
        let whole_heads_turn = rotation.is_none_or(|rotation| 2 * rotation.pairs == model.head_dim);
        let (function, PrepareQkvShape { blocks: parts, threads }) = match &kernels.prepare_qkv {
            Some(prepare_qkv) if whole_heads_turn && arguments.whole == 0 => {
                (&prepare_qkv.function, prepare_qkv.shape(model.heads + 2 * model.kv_heads))
            }
            _ => (
                &kernels.prepare_qkv_any,
                PrepareQkvShape { blocks: model.prepare_qkv_blocks(), threads: 256 },
            ),
        };
        let shape = blocks([self.rows(), parts, 1], threads, 0);
        Ok(stream.launch(function, shape, &arguments)?)
    }

    fn attend(&self, layer: usize, window: usize, rows: RowsOf) -> Result<(), CudaError> {
        let Program { stream, kernels, model, workspace, constants, plan, .. } = self.program;
        let arguments = Attend {
            queries: workspace.queries,
            kv: self.program.layer_kv(layer),
            out: workspace.attended,
            tables: self.array(self.sections.tables()),
            counts: self.array(self.sections.counts(window)),
            items: self.array(self.sections.items(window)),
            prompts: self.array(self.sections.prompts()),
            partial_values: workspace.partial_values,
            partial_stats: workspace.partial_stats,
            heads: model.heads as u32,
            kv_heads: model.kv_heads as u32,
            window: plan.windows[window].unwrap_or(0) as u32,
            scale: constants.scale,
            cap: constants.score_cap,
        };
        kernels.attend_decode.launch(stream, self.filled, &arguments, self.program.blocks)?;
        if self.filled.prompts {
            let (counts, prompts) = match rows {
                RowsOf::Picked => (self.sections.picked_counts(), self.sections.picked_prompts()),
                RowsOf::Tokens | RowsOf::Pairs(_) => (self.sections.counts(window), self.sections.prompts()),
            };
            let arguments = Attend { counts: self.array(counts), prompts: self.array(prompts), ..arguments };
            kernels.attend_prompt.launch(stream, &arguments, self.program.blocks)?;
        }
        Ok(())
    }

    fn gate(&self, width: usize, bias: Option<VectorId>, rows: RowsOf) -> Result<(), CudaError> {
        let Program { stream, kernels, weights, workspace, plan, .. } = self.program;
        let arguments = Gate {
            gate_up: workspace.gate_up,
            bias: weights.vector(bias),
            out: workspace.gated,
            width: width as u32,
            kind: activation_kind(plan.activation),
        };
        let each = if let RowsOf::Pairs(top_k) = rows { top_k } else { 1 };
        // Eight values a thread. An expert is narrow, and has no use for most threads of a full block.
        let threads = width.div_ceil(8).next_multiple_of(32).min(256);
        let shape = blocks([self.rows() * each, width.div_ceil(8 * threads), 1], threads as u32, 0);
        Ok(stream.launch(&kernels.gate, shape, &arguments)?)
    }
}
