//! Every array a step writes, made once: the forward pass allocates nothing.

use ropeway_kernels::Compute;
use ropeway_kernels::activations::{Activations, Needs};
use ropeway_kernels::attention::{Queries, scratch_bytes};
use ropeway_kernels::elementwise::rms_norm_in_place;
use ropeway_kernels::kv::KvLayout;
use ropeway_kernels::memory::Buffer;
use ropeway_kernels::prepare::NormBy;

use crate::decoder::Decoder;
use crate::experts::ExpertsWork;
use crate::layer::{GatedMlp, Linear, Mlp};
use crate::step::Step;

/// Most tokens and most rows of logits in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLimits {
    /// Tokens.
    pub tokens: usize,
    /// Rows of logits.
    pub rows: usize,
}

/// Scratch of the forward pass.
pub struct Workspace {
    limits: StepLimits,
    vocab: usize,
    /// `[token][hidden]`: the residual stream.
    pub(crate) hidden: Buffer<f32>,
    /// `[token][hidden]`: a branch before its post-norm.
    pub(crate) branch: Buffer<f32>,
    /// The normed residual stream, as products read it.
    pub(crate) normed: Activations,
    /// `[token][q | k | v]`.
    pub(crate) projections: Buffer<f32>,
    pub(crate) queries: Queries,
    /// `[token][heads * head_dim]`.
    pub(crate) attended: Buffer<f32>,
    pub(crate) attended_ready: Activations,
    /// `[token][intermediate, padded to 16]`.
    pub(crate) gated: Buffer<f32>,
    pub(crate) gated_ready: Activations,
    /// One per rope.
    pub(crate) angles: Vec<Angles>,
    pub(crate) experts: Option<ExpertsWork>,
    /// `[row][vocab]`.
    pub(crate) logits: Buffer<f32>,
}

/// `[token][cos of each pair | sin of each pair]`.
pub(crate) struct Angles {
    pub rows: Buffer<f32>,
}

/// The residual stream and the room for a branch beside it.
pub(crate) struct Residual<'a> {
    pub hidden: &'a mut [f32],
    pub branch: &'a mut [f32],
}

impl Workspace {
    /// Room for steps within `limits`; also sizes the workers' scratch.
    pub fn new(decoder: &Decoder, layout: KvLayout, limits: StepLimits, compute: &mut Compute) -> Self {
        let spec = &decoder.spec;
        let tokens = limits.tokens;
        compute.reserve_scratch(scratch_bytes(layout, spec.heads));
        let widest = decoder.layers.iter().map(|layer| widest_mlp(&layer.mlp)).max().unwrap_or(0);
        let rows = tokens.max(limits.rows);
        Self {
            limits,
            vocab: spec.vocab,
            hidden: Buffer::zeroed(tokens * spec.hidden),
            branch: Buffer::zeroed(if spec.post_norms { tokens * spec.hidden } else { 0 }),
            normed: Activations::with_capacity(rows, spec.hidden, decoder.needs(Reader::Hidden)),
            projections: Buffer::zeroed(tokens * (spec.q_width() + 2 * spec.kv_width())),
            queries: Queries::with_capacity(tokens, spec.heads, layout),
            attended: Buffer::zeroed(tokens * spec.q_width()),
            attended_ready: Activations::with_capacity(
                tokens,
                spec.q_width(),
                decoder.needs(Reader::Attended),
            ),
            gated: Buffer::zeroed(tokens * widest.next_multiple_of(16)),
            gated_ready: Activations::with_capacity(tokens, widest, decoder.needs(Reader::Gated)),
            angles: decoder
                .ropes
                .iter()
                .map(|rope| Angles { rows: Buffer::zeroed(tokens * 2 * rope.pairs()) })
                .collect(),
            experts: ExpertsWork::for_decoder(decoder, tokens),
            logits: Buffer::zeroed(limits.rows * spec.vocab),
        }
    }

    /// Its limits.
    pub fn limits(&self) -> StepLimits {
        self.limits
    }

    /// The logits of the last step's row `row`.
    pub fn logits(&mut self, row: usize) -> &mut [f32] {
        &mut self.logits[row * self.vocab..(row + 1) * self.vocab]
    }

    /// `[row][vocab]`: the logits of the last step's first `rows` rows.
    pub fn logit_rows(&mut self, rows: usize) -> &mut [f32] {
        &mut self.logits[..rows * self.vocab]
    }

    /// Checks a step against the limits; the caller's bug if it does not fit.
    pub(crate) fn begin(&self, step: &Step<'_>) {
        assert!(step.tokens.len() <= self.limits.tokens, "step has more tokens than the workspace");
        let (positions, slots) = (step.positions.len(), step.slots.as_slice().len());
        assert!(positions == step.tokens.len() && slots == step.tokens.len());
    }
}

impl Residual<'_> {
    /// `hidden += norm(branch)`.
    pub(crate) fn add_normed(&mut self, compute: &mut Compute, rows: usize, width: usize, by: NormBy<'_>) {
        compute.for_each_row(&mut self.branch[..rows * width], width, &|_, row| {
            rms_norm_in_place(row, by.weight, by.norm);
        });
        let branch = &self.branch[..rows * width];
        compute.for_each_row(&mut self.hidden[..rows * width], width, &|row, hidden| {
            for (hidden, value) in hidden.iter_mut().zip(&branch[row * width..]) {
                *hidden += value;
            }
        });
    }
}

/// Who reads an activation.
#[derive(Clone, Copy)]
enum Reader {
    Hidden,
    Attended,
    Gated,
}

impl Decoder {
    /// The forms an activation must be prepared in for all of its readers.
    fn needs(&self, reader: Reader) -> Needs {
        let mut needs = Needs::default();
        let mut add = |linear: &Linear| needs = needs.and(linear.needs());
        for layer in &self.layers {
            match reader {
                Reader::Hidden => {
                    layer.qkv.iter().for_each(&mut add);
                    match &layer.mlp {
                        Mlp::Dense(mlp) => add(&mlp.gate_up),
                        Mlp::Experts(experts) => add(&experts.router),
                    }
                }
                Reader::Attended => add(&layer.output),
                Reader::Gated => each_mlp(&layer.mlp).for_each(|mlp| add(&mlp.down)),
            }
        }
        if matches!(reader, Reader::Hidden) {
            add(&self.head);
        }
        needs
    }
}

pub(crate) fn each_mlp(mlp: &Mlp) -> impl Iterator<Item = &GatedMlp> {
    match mlp {
        Mlp::Dense(mlp) => std::slice::from_ref(mlp).iter(),
        Mlp::Experts(experts) => experts.mlps.iter(),
    }
}

fn widest_mlp(mlp: &Mlp) -> usize {
    each_mlp(mlp).map(|mlp| mlp.intermediate).max().unwrap_or(0)
}
