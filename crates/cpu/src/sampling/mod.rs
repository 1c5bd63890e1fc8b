//! From a row of logits to a token.
//!
//! What happens, in this order:
//!
//! ```text
//! 1  logit bias          added
//! 2  penalties           repetition over prompt and answer, then presence and frequency over the answer
//!    mask                tokens that the row's guide does not allow are excluded
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
//! asked for. Loops over the vocabulary are compiled for the machine's instruction set and give the same bits on all.
//!
//! [`Samplers`] spreads the rows of a step over the compute workers, with a [`Sampler`] each.

mod adjust;
mod candidates;
mod logprobs;
mod random;
mod row;
mod step;
#[cfg(test)]
mod tests;

pub use self::adjust::Tokens;
pub use self::step::{Asked, Samplers};

use ropeway_executor::{RowError, RowResult, Sampled, SamplingParams};
use ropeway_kernels::Isa;

use self::{
    adjust::Counts,
    candidates::Candidates,
    row::{Peak, Row},
};

/// Chooses tokens; holds the scratch that the rows it sees share.
#[derive(Debug)]
pub struct Sampler {
    isa: Isa,
    /// The logits as the model gave them, kept where they are adjusted but log-probabilities are wanted.
    raw: Vec<f32>,
    /// What a row's guide allows.
    mask: Vec<u32>,
    counts: Counts,
    candidates: Candidates,
    /// Mass of each stretch of the vocabulary, for draws from all of it.
    stretches: Vec<f64>,
}

impl Sampler {
    /// A sampler without scratch; the first rows grow it.
    pub fn new(isa: Isa) -> Self {
        Self {
            isa,
            raw: Vec::new(),
            mask: Vec::new(),
            counts: Counts::default(),
            candidates: Candidates::default(),
            stretches: Vec::new(),
        }
    }

    /// Chooses the token at `position` of a sequence whose earlier tokens are `history`. Overwrites `logits`.
    /// Log-probabilities are zero and absent unless `params.logprobs` asks for them.
    pub fn sample(
        &mut self,
        logits: &mut [f32],
        params: &SamplingParams,
        history: Tokens<'_>,
        position: u64,
    ) -> RowResult {
        if adjust::adjusts(params) {
            return self.sample_adjusted(logits, None, params, (history, position));
        }
        let own = self.peak(logits)?;
        let token = self.choose(logits, own, params, position);
        Ok(self.sampled(logits, own, token, params.logprobs))
    }

    /// The same among the tokens that `mask` allows; see [`Guides`](ropeway_executor::Guides).
    pub fn sample_among(
        &mut self,
        logits: &mut [f32],
        mask: &[u32],
        params: &SamplingParams,
        after: (Tokens<'_>, u64),
    ) -> RowResult {
        self.sample_adjusted(logits, Some(mask), params, after)
    }

    /// Chooses where biases, penalties or a mask change logits first.
    fn sample_adjusted(
        &mut self,
        logits: &mut [f32],
        mask: Option<&[u32]>,
        params: &SamplingParams,
        (history, position): (Tokens<'_>, u64),
    ) -> RowResult {
        let own = self.peak(logits)?;
        if params.logprobs.is_some() {
            self.raw.clear();
            self.raw.extend_from_slice(logits);
        }
        adjust::bias(logits, &params.logit_bias);
        self.counts.penalise(logits, params, history);
        if let Some(allowed) = &params.allowed {
            adjust::restrict(logits, allowed);
        }
        if let Some(mask) = mask {
            adjust::exclude(logits, mask);
        }
        let peak = Peak::of(self.isa, logits).filter(|peak| peak.logit > f32::NEG_INFINITY);
        let token = self.choose(logits, peak.ok_or(RowError::NothingAllowed)?, params, position);
        let raw = std::mem::take(&mut self.raw);
        let sampled = self.sampled(&raw, own, token, params.logprobs);
        self.raw = raw;
        Ok(sampled)
    }

    /// Reports what the model thought of `token`, and `count` alternatives.
    pub fn score(&mut self, logits: &[f32], token: u32, count: u32) -> RowResult {
        let peak = self.peak(logits)?;
        Ok(self.sampled(logits, peak, token, Some(count)))
    }

    /// The peak of a row that the model gave.
    fn peak(&self, logits: &[f32]) -> Result<Peak, RowError> {
        Peak::of(self.isa, logits).filter(|peak| peak.logit.is_finite()).ok_or(RowError::NotFinite)
    }

    fn choose(&mut self, logits: &[f32], peak: Peak, params: &SamplingParams, position: u64) -> u32 {
        let greedy = params.temperature.is_nan() || params.temperature <= 0.0 || params.top_k == 1;
        if greedy {
            return peak.token(logits);
        }
        let row = Row::new(self.isa, logits, peak, params.temperature);
        let share = random::uniform(params.seed, position);
        if candidates::filters(params, logits.len()) {
            self.candidates.filter(&row, params);
            return self.candidates.draw(share);
        }
        row.draw(share, &mut self.stretches)
    }

    /// A token with what was asked about it; `raw` are the model's own logits, and `peak` is theirs.
    fn sampled(&mut self, raw: &[f32], peak: Peak, token: u32, logprobs: Option<u32>) -> Sampled {
        let Some(count) = logprobs else { return Sampled { token, ..Sampled::default() } };
        logprobs::describe(&Row::new(self.isa, raw, peak, 1.0), token, count, &mut self.candidates)
    }
}
