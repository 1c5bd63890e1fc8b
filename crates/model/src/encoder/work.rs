//! Every array an encoder's pass writes, made once: the pass allocates nothing.

use ropeway_kernels::Compute;
use ropeway_kernels::activations::{Activations, Needs};
use ropeway_kernels::attention::whole::scratch_bytes;
use ropeway_kernels::memory::Buffer;

use super::{Encoder, EncoderSpec, Pooling, Texts};
use crate::layer::Linear;

/// Scratch of the encoder forward pass.
pub struct EncoderWork {
    most: usize,
    width: usize,
    /// `[row]`: each token's position in its text.
    pub(super) places: Vec<u32>,
    /// `[row][hidden]`: the residual stream.
    pub(super) hidden: Buffer<f32>,
    /// It, as products read it.
    pub(super) ready: Activations,
    /// `[row][q | k | v]`.
    pub(super) projections: Buffer<f32>,
    /// `[row][heads * head_dim]`.
    pub(super) attended: Buffer<f32>,
    pub(super) attended_ready: Activations,
    /// `[row][intermediate, padded to 16]`.
    pub(super) inner: Buffer<f32>,
    pub(super) inner_ready: Activations,
    /// Per rope: `[row][cos of each pair | sin of each pair]`.
    pub(super) angles: Vec<Buffer<f32>>,
}

impl EncoderWork {
    /// Room for passes of up to `tokens` tokens; also sizes the workers' scratch.
    pub fn new(encoder: &Encoder, tokens: usize, compute: &mut Compute) -> Self {
        let spec = &encoder.spec;
        compute.reserve_scratch(scratch_bytes(tokens.min(spec.max_tokens), spec.head_dim));
        let needs = |all: &mut dyn Iterator<Item = &Linear>| {
            all.fold(Needs::default(), |needs, linear| needs.and(linear.needs()))
        };
        let layers = &encoder.layers;
        let mut hidden_readers = layers
            .iter()
            .flat_map(|layer| layer.qkv.iter().chain([layer.mlp.ends().0]))
            .chain(encoder.scorer.as_ref().map(super::Scorer::dense));
        Self {
            most: tokens,
            width: spec.hidden,
            places: Vec::with_capacity(tokens),
            hidden: Buffer::zeroed(tokens * spec.hidden),
            ready: Activations::with_capacity(tokens, spec.hidden, needs(&mut hidden_readers)),
            projections: Buffer::zeroed(tokens * 3 * spec.width()),
            attended: Buffer::zeroed(tokens * spec.width()),
            attended_ready: Activations::with_capacity(
                tokens,
                spec.width(),
                needs(&mut layers.iter().map(|layer| &layer.output)),
            ),
            inner: Buffer::zeroed(tokens * spec.intermediate.next_multiple_of(16)),
            inner_ready: Activations::with_capacity(
                tokens,
                spec.intermediate,
                needs(&mut layers.iter().map(|layer| layer.mlp.ends().1)),
            ),
            angles: encoder.ropes.iter().map(|rope| Buffer::zeroed(tokens * 2 * rope.pairs())).collect(),
        }
    }

    /// Most tokens of a pass.
    pub fn tokens(&self) -> usize {
        self.most
    }

    /// The vector of row `row` of the last pass.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.hidden[row * self.width..(row + 1) * self.width]
    }

    /// One vector for the text in `rows` of the last pass.
    pub fn pooled(&self, rows: std::ops::Range<usize>, pooling: Pooling) -> Vec<f32> {
        pooling.apply(&self.hidden[rows.start * self.width..rows.end * self.width], self.width)
    }

    /// Checks a pass; the caller's bug if it does not fit.
    pub(super) fn begin(&mut self, texts: &Texts<'_>, spec: &EncoderSpec) {
        texts.check(self.most, spec).expect("a pass that fits");
        self.places.clear();
        self.places.extend(texts.rows.iter().flat_map(|rows| 0..rows.len() as u32));
    }
}
