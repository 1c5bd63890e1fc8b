//! Rotary position embeddings: how far each pair of a head's values turns at a position.
//!
//! ```text
//! pair i of `dims / 2`, position p:   angle = p * inverse[i],   inverse[i] = theta^(-2i / dims), then stretched:
//!   Linear    inverse / factor
//!   Dynamic   theta * (factor * context / original - factor + 1)^(dims / (dims - 2)); plain when context <= original
//!   Llama3    wavelength 2 pi / inverse: long ones / factor, short ones kept, linear in 1 / wavelength between
//!   Yarn      pairs below `low` kept, above `high` / factor, a linear ramp between
//!   LongRope  inverse / short[i], or / long[i] when context > original
//!   Factors   inverse / factors[i]
//! ```
//! Everything is computed in f64 and rounded once, so that an angle at position 100,000 is as good as one at 1. A table
//! depends on the model and the configured window alone: never on the batch or on how long a sequence has grown.

use std::f64::consts::TAU;

use crate::spec::{Llama3Scaling, RopeSpec, Scaling, YarnScaling};

/// The turning speed of every pair, and what cosines and sines are multiplied by.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    /// Radians per position; `dims / 2` of them.
    inverse: Vec<f64>,
    attention_factor: f64,
}

impl RopeTable {
    /// The table of a rotary embedding in a window of `context` tokens.
    pub fn new(spec: &RopeSpec, context: usize) -> Self {
        let theta = match spec.scaling {
            Scaling::Dynamic { factor, original_context } if context > original_context => {
                let growth = factor * context as f64 / original_context as f64 - (factor - 1.0);
                spec.theta * growth.powf(spec.dims as f64 / (spec.dims as f64 - 2.0))
            }
            _ => spec.theta,
        };
        let mut inverse: Vec<f64> =
            (0..spec.dims / 2).map(|pair| theta.powf(-2.0 * pair as f64 / spec.dims as f64)).collect();
        stretch(&mut inverse, spec, context);
        let attention_factor = match &spec.scaling {
            Scaling::Yarn(yarn) => yarn.attention_factor,
            Scaling::LongRope(longrope) => longrope.attention_factor,
            _ => 1.0,
        };
        Self { inverse, attention_factor }
    }

    /// Pairs that turn: half the rotated values of a head.
    pub fn pairs(&self) -> usize {
        self.inverse.len()
    }

    /// Radians per position of every pair.
    pub fn inverse_frequencies(&self) -> &[f64] {
        &self.inverse
    }

    /// What cosines and sines are multiplied by; [`fill`](Self::fill) has done so already.
    pub fn attention_factor(&self) -> f64 {
        self.attention_factor
    }

    /// Writes the cosine and sine of every pair at `position`; both rows hold [`pairs`](Self::pairs) values.
    pub fn fill(&self, position: usize, cos: &mut [f32], sin: &mut [f32]) {
        debug_assert_eq!((cos.len(), sin.len()), (self.pairs(), self.pairs()));
        for ((inverse, cos), sin) in self.inverse.iter().zip(cos).zip(sin) {
            let (s, c) = (position as f64 * inverse).sin_cos();
            *cos = (c * self.attention_factor) as f32;
            *sin = (s * self.attention_factor) as f32;
        }
    }
}

/// Slows the pairs down as the scaling says.
fn stretch(inverse: &mut [f64], spec: &RopeSpec, context: usize) {
    match &spec.scaling {
        Scaling::None | Scaling::Dynamic { .. } => {}
        Scaling::Linear { factor } => change(inverse, |_, inverse| inverse / factor),
        Scaling::Factors(factors) => change(inverse, |pair, inverse| inverse / f64::from(factors[pair])),
        Scaling::Llama3(llama3) => change(inverse, |_, inverse| llama3_frequency(inverse, llama3)),
        Scaling::Yarn(yarn) => yarn_ramp(inverse, spec, yarn),
        Scaling::LongRope(longrope) => {
            let long = context > longrope.original_context;
            let divisors = if long { &longrope.long } else { &longrope.short };
            change(inverse, |pair, inverse| inverse / f64::from(divisors[pair]));
        }
    }
}

fn change(inverse: &mut [f64], to: impl Fn(usize, f64) -> f64) {
    for (pair, inverse) in inverse.iter_mut().enumerate() {
        *inverse = to(pair, *inverse);
    }
}

/// ```text
/// turns over the original window:   0 .. low_freq_factor .. high_freq_factor .. more
///                                    / factor      ramp            as trained
/// ```
fn llama3_frequency(inverse: f64, scaling: &Llama3Scaling) -> f64 {
    let turns = scaling.original_context as f64 * inverse / TAU;
    let (low, high) = (scaling.low_freq_factor, scaling.high_freq_factor);
    let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
    kept * inverse + (1.0 - kept) * inverse / scaling.factor
}

/// ```text
/// pair:   0 .. low (turns beta_fast times) .. high (turns beta_slow times) .. dims / 2
///          as trained             ramp                 / factor
/// ```
fn yarn_ramp(inverse: &mut [f64], spec: &RopeSpec, yarn: &YarnScaling) {
    let dims = spec.dims as f64;
    let pair_that_turns =
        |times: f64| dims * (yarn.original_context as f64 / (times * TAU)).ln() / (2.0 * spec.theta.ln());
    let (mut low, mut high) = (pair_that_turns(yarn.beta_fast), pair_that_turns(yarn.beta_slow));
    if yarn.truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(dims - 1.0));
    let span = if (high - low).abs() < 1e-9 { 0.001 } else { high - low };
    change(inverse, |pair, inverse| {
        let divided = ((pair as f64 - low) / span).clamp(0.0, 1.0);
        inverse * (1.0 - divided) + inverse / yarn.factor * divided
    });
}
