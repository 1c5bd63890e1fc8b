//! Changes to single logits before anything is chosen: bias, penalties, and tokens excluded by a mask.
//!
//! Whatever the parameters, a logit stays a number below infinity: what would become NaN is excluded, what would become
//! infinite is the largest number there is.

use ropeway_executor::SamplingParams;

/// Whether these parameters change any logit.
pub(super) fn adjusts(params: &SamplingParams) -> bool {
    !params.logit_bias.is_empty() || params.allowed.is_some() || params.uses_history()
}

/// Adds each bias to its token's logit; tokens outside the vocabulary are ignored.
pub(super) fn bias(logits: &mut [f32], biases: &[(u32, f32)]) {
    for (token, bias) in biases {
        if let Some(logit) = logits.get_mut(*token as usize) {
            *logit = settled(*logit + bias);
        }
    }
}

/// Excludes every token but these, which are in ascending order.
pub(super) fn restrict(logits: &mut [f32], allowed: &[u32]) {
    let (vocab, mut next) = (logits.len(), 0);
    for token in allowed.iter().map(|token| *token as usize).take_while(|token| *token < vocab) {
        logits[next.min(token)..token].fill(f32::NEG_INFINITY);
        next = token + 1;
    }
    logits[next..].fill(f32::NEG_INFINITY);
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

/// The tokens before the wanted one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tokens<'a> {
    /// Prompt and answer.
    pub all: &'a [u32],
    /// How many of them are the prompt's.
    pub prompt: usize,
}

/// How often each token stands in a history: scratch, all zero between uses.
#[derive(Debug, Default)]
pub(super) struct Counts(Vec<u32>);

/// The tokens that each kind of penalty looks at.
#[derive(Clone, Copy)]
struct Penalised<'a> {
    repeated: &'a [u32],
    counted: &'a [u32],
}

impl<'a> Penalised<'a> {
    fn of(params: &SamplingParams, history: Tokens<'a>) -> Self {
        let Tokens { all, prompt } = history;
        match params.penalty_window {
            Some(window) => {
                let latest = &all[all.len().saturating_sub(window as usize)..];
                Self { repeated: latest, counted: latest }
            }
            None => Self { repeated: all, counted: &all[prompt.min(all.len())..] },
        }
    }
}

impl Counts {
    /// Applies the penalties to every token that they look at, once per token: repetition first.
    pub(super) fn penalise(&mut self, logits: &mut [f32], params: &SamplingParams, history: Tokens<'_>) {
        if !params.uses_history() {
            return;
        }
        let Penalised { repeated, counted } = Penalised::of(params, history);
        let penalty = params.repetition_penalty;
        self.each(logits.len(), repeated, |token, _| {
            let logit = logits[token];
            logits[token] = settled(if logit > 0.0 { logit / penalty } else { logit * penalty });
        });
        self.each(logits.len(), counted, |token, count| {
            let less = count as f32 * params.frequency_penalty;
            logits[token] = settled(logits[token] - less - params.presence_penalty);
        });
    }

    /// Calls `change` once for every token of the vocabulary that stands in `tokens`, with how often it does.
    fn each(&mut self, vocab: usize, tokens: &[u32], mut change: impl FnMut(usize, u32)) {
        self.0.resize(vocab.max(self.0.len()), 0);
        let known = || tokens.iter().map(|token| *token as usize).filter(|token| *token < vocab);
        for token in known() {
            self.0[token] += 1;
        }
        for token in known() {
            let count = std::mem::take(&mut self.0[token]);
            if count > 0 {
                change(token, count);
            }
        }
    }
}

fn settled(logit: f32) -> f32 {
    if logit.is_nan() { f32::NEG_INFINITY } else { logit.min(f32::MAX) }
}
