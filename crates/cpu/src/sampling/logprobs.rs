//! Log-probabilities under the model's own distribution: the log-softmax of raw logits.

use ropeway_executor::Sampled;
use ropeway_kernels::elementwise::log_sum_exp;

use super::candidates::Candidates;

/// What the model thought of `token`, and of the `count` likeliest tokens.
pub(super) fn describe(logits: &[f32], token: u32, count: u32, scratch: &mut Candidates) -> Sampled {
    let normaliser = log_sum_exp(logits);
    let logprob = logits.get(token as usize).map_or(f32::NEG_INFINITY, |logit| logit - normaliser);
    let count = (count as usize).min(logits.len());
    let top = scratch.largest(logits, count).map(|(token, logit)| (token, logit - normaliser)).collect();
    Sampled { token, logprob, top }
}
