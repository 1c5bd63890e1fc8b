//! The head of a cross-encoder: from a pair of texts, encoded as one, to how well they fit.
//!
//! ```text
//! score = output . norm(activation(dense . pooled)) + bias        the norm where the head has one
//! ```

use ropeway_kernels::Compute;
use ropeway_kernels::elementwise::layer_norm;
use ropeway_kernels::matmul::{Epilogue, Output, matmul};
use ropeway_kernels::prepare::{Before, Prepare, Rows, prepare};

use super::{Encoder, EncoderWork, NormWeights, Pooling, Texts};
use crate::layer::Linear;

/// The head's weights.
pub(super) struct Scorer {
    pub(super) pooling: Pooling,
    pub(super) dense: Linear,
    pub(super) end: ScoreEnd,
}

/// What follows the head's first matrix.
pub struct ScoreEnd {
    pub(super) bend: Bend,
    pub(super) norm: Option<NormWeights>,
    pub(super) output: Vec<f32>,
    pub(super) bias: f32,
}

/// What stands between the head's two matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bend {
    Tanh,
    Gelu,
}

impl Scorer {
    pub(super) fn dense(&self) -> &Linear {
        &self.dense
    }
}

impl Encoder {
    /// The raw score of every text of the pass just run; `None` where the model has no such head.
    pub fn scores(
        &self,
        compute: &mut Compute,
        texts: &Texts<'_>,
        work: &mut EncoderWork,
    ) -> Option<Vec<f32>> {
        let scorer = self.scorer.as_ref()?;
        let (hidden, count) = (self.spec.hidden, texts.rows.len());
        let mut pooled = Vec::with_capacity(count * hidden);
        for rows in texts.rows {
            pooled.extend(work.pooled(rows.clone(), scorer.pooling));
        }
        let what = Prepare {
            source: &pooled,
            stride: hidden,
            cols: hidden,
            rows: Rows::First(count),
            before: Before::Nothing,
            width: scorer.dense.width,
        };
        prepare(compute, &what, &mut work.ready);
        let mut dense = vec![0.0; count * hidden];
        let product = scorer.dense.product(&work.ready, count, Epilogue::Store);
        matmul(compute, &product, Output { data: &mut dense, stride: hidden, column: 0 });
        Some(dense.chunks_exact_mut(hidden).map(|row| scorer.end.score(row)).collect())
    }
}

impl ScoreEnd {
    /// The score of a text for which the first matrix gave `row`.
    pub fn score(&self, row: &mut [f32]) -> f32 {
        for x in row.iter_mut() {
            *x = match self.bend {
                Bend::Tanh => x.tanh(),
                Bend::Gelu => ropeway_kernels::elementwise::Activation::Gelu.apply(*x),
            };
        }
        if let Some(norm) = &self.norm {
            layer_norm(row, norm.by());
        }
        row.iter().zip(&self.output).map(|(x, w)| x * w).sum::<f32>() + self.bias
    }
}
