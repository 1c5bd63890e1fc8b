//! The one decoder forward pass: a ragged batch of chunks in, rows of logits out.
//!
//! ```text
//! embed -> per layer: attention, then a dense or expert MLP, each added to the residual stream -> norm -> head
//! ```
//! Every family runs through [`Decoder::forward`]; what differs between them is data in [`DecoderSpec`] and in the
//! loaded layers (`layer.rs`). All tokens of all chunks go through each matrix together, without padding; only attention
//! looks at which sequence a row belongs to. Nothing is allocated per step, and no row's result depends on another row.

use ropeway_kernels::Compute;
use ropeway_kernels::activations::Width;
use ropeway_kernels::attention::{Attention, AttentionParams, attend};
use ropeway_kernels::compute::ComputeSource;
use ropeway_kernels::elementwise::rms_norm_in_place;
use ropeway_kernels::matmul::{Epilogue, Output, Product, matmul};
use ropeway_kernels::prepare::{Before, NormBy, Prepare, Rows, prepare};
use ropeway_kernels::route::{HeadNorms, Pairing, Rotation, Route, route};

use crate::RopeTable;
use crate::experts;
use crate::kv::KvCache;
use crate::layer::{Between, Embedding, GatedMlp, Layer, Linear, Mlp};
use crate::spec::{DecoderSpec, RopeIndex, RopeLayout};
use crate::step::Step;
use crate::workspace::{Residual, Workspace};

/// A loaded model.
pub struct Decoder {
    /// What it is.
    pub spec: DecoderSpec,
    pub(crate) layers: Vec<Layer>,
    pub(crate) embedding: Embedding,
    pub(crate) final_norm: Vec<f32>,
    pub(crate) head: Linear,
    pub(crate) ropes: Vec<RopeTable>,
}

impl Decoder {
    /// Runs one step. Logits of `step.logit_rows` are left in [`Workspace::logits`].
    pub fn forward(
        &self,
        source: &mut dyn ComputeSource,
        step: &Step<'_>,
        kv: &mut KvCache,
        work: &mut Workspace,
    ) {
        self.run_layers(source, step, kv, work);
        self.logits(source.compute(), step, work);
    }

    /// Runs one step and returns the normed vectors of `step.logit_rows`, one after the other: what logits would be made
    /// of.
    pub fn vectors(
        &self,
        source: &mut dyn ComputeSource,
        step: &Step<'_>,
        kv: &mut KvCache,
        work: &mut Workspace,
    ) -> Vec<f32> {
        self.run_layers(source, step, kv, work);
        let hidden = self.spec.hidden;
        let mut out = Vec::with_capacity(step.logit_rows.len() * hidden);
        for &row in step.logit_rows {
            out.extend_from_slice(&work.hidden[row as usize * hidden..(row as usize + 1) * hidden]);
        }
        for row in out.chunks_exact_mut(hidden) {
            rms_norm_in_place(row, &self.final_norm, self.spec.norm);
        }
        out
    }

    /// Bytes of packed weights that one decoded token reads.
    pub fn weight_bytes(&self) -> usize {
        self.layers.iter().map(Layer::bytes_per_token).sum::<usize>() + self.head.matrix.bytes()
    }

    fn run_layers(
        &self,
        source: &mut dyn ComputeSource,
        step: &Step<'_>,
        kv: &mut KvCache,
        work: &mut Workspace,
    ) {
        work.begin(step);
        self.embed(source.compute(), step, work);
        self.fill_angles(source.compute(), step, work);
        let rows = step.tokens.len();
        for (index, layer) in self.layers.iter().enumerate() {
            source.start_layer();
            let compute = source.compute();
            self.attention(compute, step, index, kv, work);
            match &layer.mlp {
                Mlp::Dense(mlp) => self.dense(compute, rows, layer, mlp, work),
                Mlp::Experts(experts) => experts::run(self, compute, rows, layer, experts, work),
            }
        }
    }

    #[allow(clippy::float_cmp, reason = "exactly 1 means the model does not scale")]
    fn embed(&self, compute: &mut Compute, step: &Step<'_>, work: &mut Workspace) {
        let (hidden, scale) = (self.spec.hidden, self.spec.embedding_scale);
        let rows = &mut work.hidden[..step.tokens.len() * hidden];
        compute.for_each_row(rows, hidden, &|row, out| {
            let token = step.tokens[row] as usize;
            match &self.embedding {
                Embedding::Tied => self.head.matrix.read_row(token, out),
                Embedding::Own(table) => table.read_f32(token, out),
            }
            if scale != 1.0 {
                for value in out {
                    *value *= scale;
                }
            }
        });
    }

    /// Cosines and sines of every rope, for every row.
    fn fill_angles(&self, compute: &mut Compute, step: &Step<'_>, work: &mut Workspace) {
        for (table, angles) in self.ropes.iter().zip(&mut work.angles) {
            let pairs = table.pairs();
            let rows = &mut angles.rows[..step.tokens.len() * 2 * pairs];
            compute.for_each_row(rows, 2 * pairs, &|row, out| {
                let (cos, sin) = out.split_at_mut(pairs);
                table.fill(step.positions[row] as usize, cos, sin);
            });
        }
    }

    fn attention(
        &self,
        compute: &mut Compute,
        step: &Step<'_>,
        index: usize,
        kv: &mut KvCache,
        work: &mut Workspace,
    ) {
        let (spec, layer, rows) = (&self.spec, &self.layers[index], step.tokens.len());
        self.normed(compute, rows, &layer.attention_norm, layer.qkv[0].width, work);
        let width = spec.q_width() + 2 * spec.kv_width();
        let mut column = 0;
        for part in &layer.qkv {
            let product = part.product(&work.normed, rows, Epilogue::Store);
            matmul(compute, &product, Output { data: &mut work.projections, stride: width, column });
            column += part.matrix.rows();
        }
        let what = Route {
            projections: &mut work.projections,
            heads: spec.heads,
            norms: layer.head_norms.as_ref().map(|weights| HeadNorms {
                query: &weights.query,
                key: &weights.key,
                norm: self.spec.norm,
            }),
            rotation: spec.layers[index].rope.map(|rope| self.rotation(rope, &work.angles[rope.0].rows)),
            slots: step.slots,
            layout: kv.layout(),
        };
        route(compute, what, &mut work.queries, kv.layer(index));
        let attention = Attention {
            layout: kv.layout(),
            params: self.attention_params(index),
            kv: kv.layer(index),
            tables: step.tables,
            spans: step.spans,
            queries: &work.queries,
        };
        attend(compute, &attention, &mut work.attended);
        let what = Prepare {
            source: &work.attended,
            stride: spec.q_width(),
            cols: spec.q_width(),
            rows: Rows::First(rows),
            before: Before::Nothing,
            width: layer.output.width,
        };
        prepare(compute, &what, &mut work.attended_ready);
        let residual = Residual { hidden: &mut work.hidden, branch: &mut work.branch };
        let product = layer.output.product(&work.attended_ready, rows, Epilogue::Store);
        self.add_to_hidden(compute, &product, layer.post_attention_norm.as_deref(), residual);
    }

    fn attention_params(&self, layer: usize) -> AttentionParams {
        AttentionParams {
            heads: self.spec.heads,
            scale: self.spec.attention.scale,
            softcap: self.spec.attention.softcap,
            window: self.spec.layers[layer].window,
        }
    }

    fn rotation<'a>(&self, rope: RopeIndex, rows: &'a [f32]) -> Rotation<'a> {
        let pairing = match self.spec.ropes[rope.0].layout {
            RopeLayout::Half => Pairing::Half,
            RopeLayout::Interleaved => Pairing::Interleaved,
        };
        Rotation { angles: rows, pairs: self.ropes[rope.0].pairs(), pairing }
    }

    fn dense(&self, compute: &mut Compute, rows: usize, layer: &Layer, mlp: &GatedMlp, work: &mut Workspace) {
        self.normed(compute, rows, &layer.mlp_norm, mlp.gate_up.width, work);
        let product = mlp.gate_up.product(&work.normed, rows, Epilogue::Gate(self.spec.activation));
        let between = Between { values: &mut work.gated, ready: &mut work.gated_ready };
        let product = mlp.down_after(compute, &product, between);
        let residual = Residual { hidden: &mut work.hidden, branch: &mut work.branch };
        self.add_to_hidden(compute, &product, layer.post_mlp_norm.as_deref(), residual);
    }

    /// `normed = norm(hidden)`, in the forms the next products read.
    pub(crate) fn normed(
        &self,
        compute: &mut Compute,
        rows: usize,
        weight: &[f32],
        width: Width,
        work: &mut Workspace,
    ) {
        let what = Prepare {
            source: &work.hidden,
            stride: self.spec.hidden,
            cols: self.spec.hidden,
            rows: Rows::First(rows),
            before: Before::RmsNorm(NormBy { weight, norm: self.spec.norm }),
            width,
        };
        prepare(compute, &what, &mut work.normed);
    }

    /// `hidden += product`, with a norm in between where the model has post-norms.
    fn add_to_hidden(
        &self,
        compute: &mut Compute,
        product: &Product<'_>,
        post_norm: Option<&[f32]>,
        mut residual: Residual<'_>,
    ) {
        let hidden = self.spec.hidden;
        let Some(weight) = post_norm else {
            let product = Product { epilogue: Epilogue::Add, ..*product };
            return matmul(compute, &product, Output { data: residual.hidden, stride: hidden, column: 0 });
        };
        matmul(compute, product, Output { data: residual.branch, stride: hidden, column: 0 });
        residual.add_normed(compute, product.rows, hidden, NormBy { weight, norm: self.spec.norm });
    }

    fn logits(&self, compute: &mut Compute, step: &Step<'_>, work: &mut Workspace) {
        let most = work.limits().rows;
        assert!(step.logit_rows.len() <= most, "step wants more logits than the workspace");
        let what = Prepare {
            source: &work.hidden,
            stride: self.spec.hidden,
            cols: self.spec.hidden,
            rows: Rows::Picked(step.logit_rows),
            before: Before::RmsNorm(NormBy { weight: &self.final_norm, norm: self.spec.norm }),
            width: self.head.width,
        };
        prepare(compute, &what, &mut work.normed);
        let product = self.head.product(&work.normed, step.logit_rows.len(), Epilogue::Store);
        let output = Output { data: &mut work.logits, stride: self.spec.vocab, column: 0 };
        matmul(compute, &product, output);
        if let Some(cap) = self.spec.logit_softcap {
            let values = &mut work.logits[..step.logit_rows.len() * self.spec.vocab];
            compute.for_each_row(values, self.spec.vocab, &|_, row| {
                for x in row {
                    *x = cap * (*x / cap).tanh();
                }
            });
        }
    }
}
