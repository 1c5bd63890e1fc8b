//! A pass of an encoder as launches.
//!
//! ```text
//! norms after:   embed ─ { qkv ─ prepare_qkv ─ attend ─ output ─ norm ─ up ─ activate ─ down ─ norm } ─ pool
//! norms before:  the same; a norm adds the branch before it and norms for the product behind it
//! ```

use ropeway_model::encoder::{EncoderSpec, NormPlace, Pooling};
use ropeway_model::spec::RopeLayout;

use super::kernels::{
    EncodeActivate, EncodeAttend, EncodeEmbed, EncodeNorm, EncodePool, EncodePrepareQkv, EncoderKernels,
    Norm, TILE,
};
use super::memory::{Memory, Section};
use super::weights::{LayerAt, LinearAt, NormAt, Weights};
use crate::blas::Operands;
use crate::driver::{Address, LaunchShape, Stream};
use crate::error::CudaError;
use crate::kernels::activation_kind;
use crate::products::{ProductKey, Products};
use crate::shape::RowClass;

/// Blocks of attention that run on a multiprocessor at once, about.
const ATTEND_BLOCKS: usize = 4;

/// Everything that launches need to know.
pub(super) struct Net {
    pub(super) stream: Stream,
    pub(super) kernels: EncoderKernels,
    pub(super) spec: EncoderSpec,
    pub(super) weights: Weights,
    pub(super) memory: Memory,
    pub(super) products: Products,
}

/// How a sum is normed.
#[derive(Clone, Copy, Debug)]
struct Normed {
    /// Absent where it is only rounded.
    norm: Option<NormAt>,
    /// Whether the residual stream becomes the normed sum, or stays the sum.
    norms_residual: bool,
}

fn blocks(x: usize, y: usize, threads: u32, shared_bytes: usize) -> LaunchShape {
    LaunchShape { grid: [x as u32, y as u32, 1], threads, shared_bytes }
}

impl Net {
    /// Queues all layers for a class of rows.
    pub(super) fn layers(&self, class: RowClass) -> Result<(), CudaError> {
        let layers = &self.weights.layout.layers;
        self.embed(class)?;
        let norms_residual = self.spec.norms == NormPlace::After;
        if let (false, Some(norm)) = (norms_residual, layers[0].attention_norm) {
            self.add_and_norm(class, None, Normed { norm: Some(norm), norms_residual })?;
        }
        for (index, layer) in layers.iter().enumerate() {
            self.attention(class, index, layer)?;
            // A norm that stands after belongs to what was added, one that stands before to what comes next.
            let norm = if norms_residual { layer.attention_norm } else { Some(layer.mlp_norm) };
            self.add_and_norm(class, Some(&layer.output), Normed { norm, norms_residual })?;
            self.mlp(class, layer)?;
            let normed = match layers.get(index + 1) {
                _ if norms_residual => Normed { norm: Some(layer.mlp_norm), norms_residual },
                Some(next) => Normed { norm: next.attention_norm, norms_residual },
                None => Normed { norm: self.weights.layout.final_norm, norms_residual: true },
            };
            self.add_and_norm(class, Some(&layer.down), normed)?;
        }
        Ok(())
    }

    fn embed(&self, class: RowClass) -> Result<(), CudaError> {
        let Self { weights, memory, spec, kernels, .. } = self;
        let arguments = EncodeEmbed {
            tokens: memory.array(Section::Tokens),
            types: memory.array(Section::Types),
            position_ids: memory.array(Section::PositionIds),
            word_embeddings: weights.at(weights.layout.words),
            position_embeddings: weights.at(weights.layout.positions),
            type_embeddings: weights.at(weights.layout.token_types),
            hidden: memory.hidden,
            ready: memory.ready,
            norm: self.norm_of(Some(weights.layout.embedding_norm)),
            first: spec.first_position.unwrap_or(0) as u32,
            unused: 0,
        };
        let shape = blocks(class.rows(), 1, kernels.row_threads, 0);
        Ok(self.stream.launch(&kernels.embed, shape, &arguments)?)
    }

    /// Adds the results of a matrix to the residual stream, and norms.
    fn add_and_norm(
        &self,
        class: RowClass,
        branch: Option<&LinearAt>,
        normed: Normed,
    ) -> Result<(), CudaError> {
        let arguments = EncodeNorm {
            hidden: self.memory.hidden,
            branch: branch.map_or(Address::NULL, |_| self.memory.branch),
            bias: self.weights.at(branch.and_then(|branch| branch.bias)),
            ready: self.memory.ready,
            norm: self.norm_of(normed.norm),
            norms_residual: u32::from(normed.norms_residual),
            unused: 0,
        };
        let shape = blocks(class.rows(), 1, self.kernels.row_threads, 0);
        Ok(self.stream.launch(&self.kernels.norm, shape, &arguments)?)
    }

    fn norm_of(&self, norm: Option<NormAt>) -> Norm {
        Norm {
            weight: self.weights.at(norm.map(|norm| norm.weight)),
            bias: self.weights.at(norm.and_then(|norm| norm.bias)),
            eps: self.spec.norm_eps,
            width: self.spec.hidden as u32,
        }
    }

    fn attention(&self, class: RowClass, index: usize, layer: &LayerAt) -> Result<(), CudaError> {
        let memory = &self.memory;
        self.linear(class, &layer.qkv, memory.ready, memory.projections)?;
        self.prepare_qkv(class, index, layer)?;
        self.attend(index)?;
        self.linear(class, &layer.output, memory.attended, memory.branch)
    }

    fn prepare_qkv(&self, class: RowClass, index: usize, layer: &LayerAt) -> Result<(), CudaError> {
        let Self { weights, memory, spec, .. } = self;
        let rope = spec.layers[index].rope;
        let arguments = EncodePrepareQkv {
            projections: memory.projections,
            bias: weights.at(layer.qkv.bias),
            cos_sin: weights.at(rope.map(|rope| weights.layout.cos_sin[rope.0])),
            position_ids: memory.array(Section::PositionIds),
            qkv: memory.qkv,
            width: spec.width() as u32,
            pairs: rope.map_or(0, |rope| spec.ropes[rope.0].dims / 2) as u32,
            interleaved: u32::from(
                rope.is_some_and(|rope| spec.ropes[rope.0].layout == RopeLayout::Interleaved),
            ),
            unused: 0,
        };
        let shape = blocks(class.rows(), (3 * spec.width()).div_ceil(512), 256, 0);
        Ok(self.stream.launch(&self.kernels.prepare_qkv, shape, &arguments)?)
    }

    fn attend(&self, index: usize) -> Result<(), CudaError> {
        let Self { weights, memory, spec, kernels, stream, .. } = self;
        let arguments = EncodeAttend {
            qkv: memory.qkv,
            out: memory.attended,
            items: memory.array(Section::Items),
            count: memory.array(Section::Count),
            relative_bias: weights.at(weights.layout.relative_bias),
            heads: spec.heads as u32,
            longest: spec.max_tokens as u32,
            // A reach as long as the text hides nothing.
            reach: spec.layers[index].reach.filter(|reach| *reach < spec.max_tokens).unwrap_or(0) as u32,
            scale: std::f32::consts::LOG2_E / (spec.head_dim as f32).sqrt(),
        };
        let parts = stream.device().properties().multiprocessors as usize;
        let shape = blocks(parts * ATTEND_BLOCKS, 1, 2 * TILE as u32, kernels.attend_shared);
        Ok(stream.launch(&kernels.attend, shape, &arguments)?)
    }

    fn mlp(&self, class: RowClass, layer: &LayerAt) -> Result<(), CudaError> {
        let Self { memory, spec, .. } = self;
        self.linear(class, &layer.up, memory.ready, memory.inner)?;
        let arguments = EncodeActivate {
            inner: memory.inner,
            bias: self.weights.at(layer.up.bias),
            out: memory.activated,
            width: spec.intermediate as u32,
            kind: activation_kind(spec.activation),
            gated: u32::from(spec.gated),
            unused: 0,
        };
        let shape = blocks(class.rows(), spec.intermediate.div_ceil(512), 256, 0);
        self.stream.launch(&self.kernels.activate, shape, &arguments)?;
        self.linear(class, &layer.down, memory.activated, memory.branch)
    }

    /// One row per text.
    pub(super) fn pool(&self, texts: usize, pooling: Pooling) -> Result<(), CudaError> {
        let arguments = EncodePool {
            hidden: self.memory.hidden,
            texts: self.memory.array(Section::Texts),
            out: self.memory.pooled,
            ready: self.memory.pooled_ready,
            width: self.spec.hidden as u32,
            how: match pooling {
                Pooling::Mean => 0,
                Pooling::First => 1,
                Pooling::Last => 2,
                Pooling::Max => 3,
            },
        };
        let shape = blocks(texts, self.spec.hidden.div_ceil(256), 256, 0);
        Ok(self.stream.launch(&self.kernels.pool, shape, &arguments)?)
    }

    /// The first matrix of a cross-encoder's head over pooled rows, without its bias.
    pub(super) fn dense(&self, class: RowClass, dense: &LinearAt) -> Result<(), CudaError> {
        self.linear(class, dense, self.memory.pooled_ready, self.memory.dense)
    }

    fn linear(&self, class: RowClass, matrix: &LinearAt, x: Address, y: Address) -> Result<(), CudaError> {
        let key = ProductKey::plain(matrix.shape, class);
        let operands = Operands { w: self.weights.at(matrix.weight), x, y };
        self.products.run(&self.stream, &self.kernels.products, key, operands)
    }
}
