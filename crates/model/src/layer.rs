//! The weights of a decoder's layers as they lie in memory, and the products they take part in.
//!
//! Filled by `load.rs`, read by the forward passes of decoders and encoders; it must never know what a step is.

use ropeway_kernels::Compute;
use ropeway_kernels::activations::{Activations, Needs, Width};
use ropeway_kernels::matmul::{Epilogue, Output, Product, matmul};
use ropeway_kernels::packed::Matrix;
use ropeway_kernels::prepare::{Before, Prepare, Rows, prepare};
use ropeway_weights::Tensor;

use crate::spec::ExpertsSpec;
use crate::tensors::HeadNormWeights;

/// Where token rows come from.
pub(crate) enum Embedding {
    /// The rows of the head.
    Tied,
    /// A table of its own, read from the file row by row.
    Own(Tensor),
}

/// A matrix and its bias.
pub(crate) struct Linear {
    pub matrix: Matrix,
    pub bias: Option<Vec<f32>>,
    /// How finely its input is quantised.
    pub width: Width,
}

pub(crate) struct Layer {
    pub attention_norm: Vec<f32>,
    /// Queries, keys and values, in this order: one matrix, or one each.
    pub qkv: Vec<Linear>,
    pub head_norms: Option<HeadNormWeights>,
    pub output: Linear,
    pub post_attention_norm: Option<Vec<f32>>,
    pub mlp_norm: Vec<f32>,
    pub mlp: Mlp,
    pub post_mlp_norm: Option<Vec<f32>>,
}

pub(crate) enum Mlp {
    Dense(GatedMlp),
    Experts(Experts),
}

/// `down(activation(gate(x)) * up(x))`.
pub(crate) struct GatedMlp {
    /// Gate and up, alternating in runs of 16.
    pub gate_up: Linear,
    pub down: Linear,
    pub intermediate: usize,
}

pub(crate) struct Experts {
    pub spec: ExpertsSpec,
    pub router: Linear,
    pub mlps: Vec<GatedMlp>,
}

impl Layer {
    /// Bytes of packed weights that one decoded token reads.
    pub(crate) fn bytes_per_token(&self) -> usize {
        let linear = |linear: &Linear| linear.matrix.bytes();
        let gated = |mlp: &GatedMlp| linear(&mlp.gate_up) + linear(&mlp.down);
        let mlp = match &self.mlp {
            Mlp::Dense(mlp) => gated(mlp),
            Mlp::Experts(experts) => gated(&experts.mlps[0]) * experts.spec.top_k + linear(&experts.router),
        };
        self.qkv.iter().map(linear).sum::<usize>() + linear(&self.output) + mlp
    }
}

/// What lies between the matrices of a gated MLP.
pub(crate) struct Between<'a> {
    /// `[row][intermediate, padded to 16]`.
    pub values: &'a mut [f32],
    pub ready: &'a mut Activations,
}

impl GatedMlp {
    /// Computes the gated product of `gate_up`, and gives the product of `down` that is to follow.
    pub(crate) fn down_after<'a>(
        &'a self,
        compute: &mut Compute,
        gate_up: &Product<'_>,
        between: Between<'a>,
    ) -> Product<'a> {
        let Between { values, ready } = between;
        let stride = self.gate_up.matrix.rows() / 2;
        matmul(compute, gate_up, Output { data: values, stride, column: 0 });
        let what = Prepare {
            source: values,
            stride,
            cols: self.intermediate,
            rows: Rows::First(gate_up.rows),
            before: Before::Nothing,
            width: self.down.width,
        };
        prepare(compute, &what, ready);
        self.down.product(ready, gate_up.rows, Epilogue::Store)
    }
}

impl Linear {
    /// The forms its input must be prepared in.
    pub(crate) fn needs(&self) -> Needs {
        let needs = self.matrix.needs();
        Needs { wide: needs.records && self.width.has_lows(), ..needs }
    }

    pub(crate) fn product<'a>(
        &'a self,
        input: &'a Activations,
        rows: usize,
        epilogue: Epilogue,
    ) -> Product<'a> {
        Product { matrix: &self.matrix, bias: self.bias.as_deref(), input, rows, epilogue }
    }
}
