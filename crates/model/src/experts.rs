//! Mixture of experts: a router sends each token to a few of many gated MLPs.
//!
//! Tokens are gathered per expert, so that each expert's matrices run once over all tokens that chose it. Experts are
//! visited in ascending order, so a token's sum is added up in the same order whatever else is in the batch.

use ropeway_kernels::Compute;
use ropeway_kernels::activations::{Activations, Needs, Width};
use ropeway_kernels::elementwise::rms_norm_in_place;
use ropeway_kernels::matmul::{Epilogue, Output, matmul};
use ropeway_kernels::memory::Buffer;
use ropeway_kernels::prepare::{Before, NormBy, Prepare, Rows, prepare};

use crate::decoder::Decoder;
use crate::layer::{Between, Experts, Layer, Mlp};
use crate::spec::ExpertsSpec;
use crate::workspace::Workspace;

/// Scratch of the expert layers.
pub(crate) struct ExpertsWork {
    /// `[token][expert]`.
    router_logits: Buffer<f32>,
    /// Per expert: the tokens that chose it, and how much it counts for each.
    chosen: Vec<Chosen>,
    /// Gathered rows of the normed residual stream.
    gathered: Activations,
    /// `[gathered row][hidden]`.
    results: Buffer<f32>,
    /// `[token][hidden]`: weighted sum over experts.
    sum: Buffer<f32>,
    /// Experts of one token, best first.
    ranking: Vec<(f32, usize)>,
}

#[derive(Default)]
struct Chosen {
    rows: Vec<u32>,
    weights: Vec<f32>,
}

impl ExpertsWork {
    /// Room for steps of `tokens` tokens, if the decoder has experts at all.
    pub(crate) fn for_decoder(decoder: &Decoder, tokens: usize) -> Option<Self> {
        let mut most = 0;
        let mut needs = Needs::default();
        for layer in &decoder.layers {
            let Mlp::Experts(experts) = &layer.mlp else { continue };
            most = most.max(experts.spec.experts);
            experts.mlps.iter().for_each(|mlp| needs = needs.and(mlp.gate_up.needs()));
        }
        let hidden = decoder.spec.hidden;
        (most > 0).then(|| Self {
            router_logits: Buffer::zeroed(tokens * most),
            chosen: (0..most)
                .map(|_| Chosen { rows: Vec::with_capacity(tokens), weights: Vec::with_capacity(tokens) })
                .collect(),
            gathered: Activations::with_capacity(tokens, hidden, needs),
            results: Buffer::zeroed(tokens * hidden),
            sum: Buffer::zeroed(tokens * hidden),
            ranking: Vec::with_capacity(most),
        })
    }

    /// Sends every token to its experts.
    fn choose(&mut self, rows: usize, spec: ExpertsSpec) {
        for chosen in &mut self.chosen {
            chosen.rows.clear();
            chosen.weights.clear();
        }
        for row in 0..rows {
            let logits = &self.router_logits[row * spec.experts..(row + 1) * spec.experts];
            rank(logits, spec, &mut self.ranking);
            for &(weight, expert) in &self.ranking {
                self.chosen[expert].rows.push(row as u32);
                self.chosen[expert].weights.push(weight);
            }
        }
    }
}

/// The `top_k` experts of one token with their weights; the lower index wins a tie.
fn rank(logits: &[f32], spec: ExpertsSpec, ranking: &mut Vec<(f32, usize)>) {
    ranking.clear();
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    ranking.extend(logits.iter().enumerate().map(|(expert, logit)| ((logit - most).exp(), expert)));
    let total: f32 = ranking.iter().map(|(p, _)| p).sum();
    ranking.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    ranking.truncate(spec.top_k);
    let kept: f32 = ranking.iter().map(|(p, _)| p).sum();
    let divisor = if spec.normalise { kept } else { total };
    for (p, _) in ranking {
        *p /= divisor;
    }
}

/// `hidden += sum over the chosen experts of weight * expert(norm(hidden))`.
pub(crate) fn run(
    decoder: &Decoder,
    compute: &mut Compute,
    rows: usize,
    layer: &Layer,
    experts: &Experts,
    work: &mut Workspace,
) {
    let hidden = decoder.spec.hidden;
    decoder.normed(compute, rows, &layer.mlp_norm, Width::Narrow, work);
    let Some(scratch) = work.experts.as_mut() else { return };
    let product = experts.router.product(&work.normed, rows, Epilogue::Store);
    let output = Output { data: &mut scratch.router_logits, stride: experts.spec.experts, column: 0 };
    matmul(compute, &product, output);
    scratch.choose(rows, experts.spec);
    scratch.sum[..rows * hidden].fill(0.0);
    for expert in 0..experts.mlps.len() {
        run_one(decoder, compute, layer, experts, expert, work);
    }
    add_sum(decoder, rows, layer, work);
}

/// One expert over the tokens that chose it.
fn run_one(
    decoder: &Decoder,
    compute: &mut Compute,
    layer: &Layer,
    experts: &Experts,
    expert: usize,
    work: &mut Workspace,
) {
    let hidden = decoder.spec.hidden;
    let mlp = &experts.mlps[expert];
    let Some(scratch) = work.experts.as_mut() else { return };
    let chosen = &scratch.chosen[expert];
    let rows = chosen.rows.len();
    if rows == 0 {
        return;
    }
    let what = Prepare {
        source: &work.hidden,
        stride: hidden,
        cols: hidden,
        rows: Rows::Picked(&chosen.rows),
        before: Before::RmsNorm(NormBy { weight: &layer.mlp_norm, norm: decoder.spec.norm }),
        width: mlp.gate_up.width,
    };
    prepare(compute, &what, &mut scratch.gathered);
    let product = mlp.gate_up.product(&scratch.gathered, rows, Epilogue::Gate(decoder.spec.activation));
    let between = Between { values: &mut work.gated, ready: &mut work.gated_ready };
    let product = mlp.down_after(compute, &product, between);
    matmul(compute, &product, Output { data: &mut scratch.results, stride: hidden, column: 0 });
    let results = scratch.results.chunks_exact(hidden);
    for ((&row, &weight), result) in chosen.rows.iter().zip(&chosen.weights).zip(results) {
        let sum = &mut scratch.sum[row as usize * hidden..][..hidden];
        for (sum, value) in sum.iter_mut().zip(result) {
            *sum += weight * value;
        }
    }
}

fn add_sum(decoder: &Decoder, rows: usize, layer: &Layer, work: &mut Workspace) {
    let hidden = decoder.spec.hidden;
    let Some(scratch) = work.experts.as_mut() else { return };
    for row in 0..rows {
        let sum = &mut scratch.sum[row * hidden..(row + 1) * hidden];
        if let Some(weight) = &layer.post_mlp_norm {
            rms_norm_in_place(sum, weight, decoder.spec.norm);
        }
        for (hidden, value) in work.hidden[row * hidden..].iter_mut().zip(sum.iter()) {
            *hidden += value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: ExpertsSpec = ExpertsSpec { experts: 4, top_k: 2, intermediate: 8, normalise: true };

    #[test]
    fn the_best_experts_are_chosen_and_their_weights_add_up_to_one() {
        let mut ranking = Vec::new();
        rank(&[0.0, 2.0, 1.0, 2.0], SPEC, &mut ranking);
        assert_eq!(ranking.iter().map(|r| r.1).collect::<Vec<_>>(), [1, 3]);
        assert!((ranking[0].0 - 0.5).abs() < 1e-6);
    }

    #[test]
    fn without_normalising_weights_are_plain_probabilities() {
        let mut ranking = Vec::new();
        rank(&[0.0; 4], ExpertsSpec { normalise: false, ..SPEC }, &mut ranking);
        assert!(ranking.iter().all(|r| (r.0 - 0.25).abs() < 1e-6));
    }
}
