//! From a row of logits to a token.
//!
//! What happens, in this order:
//!
//! ```text
//! 1  logit bias          added
//! 2  penalties           repetition, then presence and frequency, over the latest tokens of the history
//! 3  temperature         0 takes the first largest logit and ends here
//! 4  top-k               the k likeliest
//! 5  typical-p           those closest to the expected surprise, until their mass is reached
//! 6  top-p               the likeliest, until their mass is reached
//! 7  min-p               those at least min-p times as likely as the likeliest left
//! 8  draw                by one number that seed and position decide alone
//! ```
//! Each filter sees the probabilities of what the one before left over, keeps at least one token, and prefers the lower
//! id among equals. Temperature comes before the filters, as in vLLM and transformers (llama.cpp puts it after them).
//! Log-probabilities are those of the model itself: the log-softmax of the logits before step 1.
//!
//! A result depends on this row, its parameters, its history and its position, never on the batch. It relies on the
//! logits of masked tokens being minus infinity; a row with NaN or plus infinity is an error of that row only. Nothing
//! here sorts a vocabulary, and nothing allocates once the scratch has grown, except a list of alternatives that was
//! asked for.

mod adjust;
mod candidates;
mod logprobs;
mod random;
mod row;
#[cfg(test)]
mod tests;

use ropeway_executor::{RowError, RowResult, Sampled, SamplingParams};

use self::{adjust::Counts, candidates::Candidates, row::Row};

/// Chooses tokens; holds the scratch that all rows of a step share.
#[derive(Debug, Default)]
pub struct Sampler {
    /// The logits as the model gave them, kept while log-probabilities are wanted.
    raw: Vec<f32>,
    counts: Counts,
    candidates: Candidates,
    /// Mass of each stretch of the vocabulary, for draws from all of it.
    stretches: Vec<f64>,
}

impl Sampler {
    /// A sampler without scratch; the first rows grow it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Chooses the token at `position` of a sequence whose earlier tokens are `history`. Overwrites `logits`.
    /// Log-probabilities are zero and absent unless `params.logprobs` asks for them.
    pub fn sample(
        &mut self,
        logits: &mut [f32],
        params: &SamplingParams,
        history: &[u32],
        position: u64,
    ) -> RowResult {
        row::largest(logits).filter(|most| most.is_finite()).ok_or(RowError::NotFinite)?;
        if params.logprobs.is_some() {
            self.raw.clear();
            self.raw.extend_from_slice(logits);
        }
        adjust::bias(logits, &params.logit_bias);
        self.counts.penalise(logits, params, history);
        let token = self.choose(logits, params, position)?;
        match params.logprobs {
            None => Ok(Sampled { token, ..Sampled::default() }),
            Some(count) => Ok(logprobs::describe(&self.raw, token, count, &mut self.candidates)),
        }
    }

    /// Reports what the model thought of `token`, and `count` alternatives.
    pub fn score(&mut self, logits: &[f32], token: u32, count: u32) -> RowResult {
        row::largest(logits).filter(|most| most.is_finite()).ok_or(RowError::NotFinite)?;
        Ok(logprobs::describe(logits, token, count, &mut self.candidates))
    }

    fn choose(&mut self, logits: &[f32], params: &SamplingParams, position: u64) -> Result<u32, RowError> {
        let most =
            row::largest(logits).filter(|most| *most > f32::NEG_INFINITY).ok_or(RowError::NothingAllowed)?;
        let greedy = params.temperature.is_nan() || params.temperature <= 0.0 || params.top_k == 1;
        if greedy {
            return Ok(row::first(logits, most));
        }
        let row = Row::new(logits, most, params.temperature);
        let share = random::uniform(params.seed, position);
        if candidates::filters(params, logits.len()) {
            self.candidates.filter(&row, params);
            return Ok(self.candidates.draw(share));
        }
        Ok(row.draw(share, &mut self.stretches))
    }
}
