//! Changes to single logits before anything is chosen: bias, penalties, and tokens excluded by a mask.
//!
//! Whatever the parameters, a logit stays a number below infinity: what would become NaN is excluded, what would become
//! infinite is the largest number there is.

use ropeway_executor::SamplingParams;

/// Whether these parameters change any logit.
pub(super) fn adjusts(params: &SamplingParams) -> bool {
    !params.logit_bias.is_empty() || params.uses_history()
}

/// Adds each bias to its token's logit; tokens outside the vocabulary are ignored.
pub(super) fn bias(logits: &mut [f32], biases: &[(u32, f32)]) {
    for (token, bias) in biases {
        if let Some(logit) = logits.get_mut(*token as usize) {
            *logit = settled(*logit + bias);
        }
    }
}

/// Excludes every token that `mask` does not allow.
pub(super) fn exclude(logits: &mut [f32], mask: &[u32]) {
    const BITS: usize = u32::BITS as usize;
    let covered = logits.len().min(mask.len() * BITS);
    for (word, logits) in mask.iter().zip(logits[..covered].chunks_mut(BITS)) {
        match *word {
            u32::MAX => {}
            0 => logits.fill(f32::NEG_INFINITY),
            word => {
                for (bit, logit) in logits.iter_mut().enumerate() {
                    *logit = if word >> bit & 1 == 1 { *logit } else { f32::NEG_INFINITY };
                }
            }
        }
    }
    logits[covered..].fill(f32::NEG_INFINITY);
}

/// How often each token stands in a history: scratch, all zero between uses.
#[derive(Debug, Default)]
pub(super) struct Counts(Vec<u32>);

impl Counts {
    /// Applies the penalties to every token of the history's window, once per token.
    pub(super) fn penalise(&mut self, logits: &mut [f32], params: &SamplingParams, history: &[u32]) {
        if !params.uses_history() {
            return;
        }
        let window = params.penalty_window.map_or(history.len(), |window| window as usize);
        let latest = &history[history.len().saturating_sub(window)..];
        let vocab = logits.len();
        self.0.resize(vocab.max(self.0.len()), 0);
        let known = || latest.iter().map(|token| *token as usize).filter(|token| *token < vocab);
        for token in known() {
            self.0[token] += 1;
        }
        for token in known() {
            let count = std::mem::take(&mut self.0[token]);
            if count > 0 {
                logits[token] = penalised(logits[token], count, params);
            }
        }
    }
}

fn penalised(logit: f32, count: u32, params: &SamplingParams) -> f32 {
    let repeated = params.repetition_penalty;
    let logit = if logit > 0.0 { logit / repeated } else { logit * repeated };
    settled(logit - count as f32 * params.frequency_penalty - params.presence_penalty)
}

fn settled(logit: f32) -> f32 {
    if logit.is_nan() { f32::NEG_INFINITY } else { logit.min(f32::MAX) }
}
