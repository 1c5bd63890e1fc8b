//! Log-probabilities under the model's own distribution: the log-softmax of raw logits.

use ropeway_executor::Sampled;

use super::candidates::Candidates;
use super::row::Row;

/// What the model thought of `token`, and of the `count` likeliest tokens; `row` holds raw logits at temperature 1.
pub(super) fn describe(row: &Row<'_>, token: u32, count: u32, scratch: &mut Candidates) -> Sampled {
    let normaliser = row.normaliser();
    let logprob = row.logits.get(token as usize).map_or(f32::NEG_INFINITY, |logit| logit - normaliser);
    let count = (count as usize).min(row.logits.len());
    let top = scratch.largest(row.isa, row.logits, count);
    let top = top.map(|(token, logit)| (token, logit - normaliser)).collect();
    Sampled { token, logprob, top }
}
