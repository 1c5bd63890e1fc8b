//! One row of logits under a temperature: weights, their mass, and draws from all of it.
//!
//! A token's weight is `exp((logit - most) / temperature)`, so that the likeliest weighs 1 and nothing overflows.

use ropeway_kernels::elementwise::exp;

/// Lanes of every reduction: the order of additions is fixed by this number, not by the register width.
const LANES: usize = 16;

/// Tokens whose mass is added up together in a draw from the whole vocabulary.
const STRETCH: usize = 1024;

/// Exponents below this weigh nothing: `exp` of them is below the smallest normal number.
const VANISHING: f32 = -87.0;

/// The largest logit, or `None` when the row is empty, or holds NaN or plus infinity.
pub(super) fn largest(logits: &[f32]) -> Option<f32> {
    let mut most = [f32::NEG_INFINITY; LANES];
    let mut usable = [true; LANES];
    let (whole, rest) = logits.as_chunks::<LANES>();
    for chunk in whole {
        for lane in 0..LANES {
            usable[lane] &= chunk[lane] < f32::INFINITY;
            most[lane] = if chunk[lane] > most[lane] { chunk[lane] } else { most[lane] };
        }
    }
    let usable = usable.iter().all(|usable| *usable) && rest.iter().all(|logit| *logit < f32::INFINITY);
    let most = most.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    (usable && !logits.is_empty()).then_some(most)
}

/// The first token with this logit.
pub(super) fn first(logits: &[f32], wanted: f32) -> u32 {
    logits.iter().position(|logit| *logit >= wanted).unwrap_or_default() as u32
}

/// Logits with the two numbers that turn them into weights.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    /// The logits; minus infinity excludes a token.
    pub(super) logits: &'a [f32],
    most: f32,
    /// Finite and above zero, so that no exponent is NaN.
    inverse_temperature: f32,
}

impl<'a> Row<'a> {
    /// A row whose largest logit is `most`; `temperature` is above zero.
    pub(super) fn new(logits: &'a [f32], most: f32, temperature: f32) -> Self {
        debug_assert!(most.is_finite() && temperature > 0.0);
        let inverse_temperature = temperature.recip().clamp(f32::MIN_POSITIVE, f32::MAX);
        Self { logits, most, inverse_temperature }
    }

    /// The logarithm of a weight: at most 0.
    pub(super) fn exponent(&self, logit: f32) -> f32 {
        (logit - self.most) * self.inverse_temperature
    }

    /// The weight of a logit: at most 1.
    pub(super) fn weight(&self, logit: f32) -> f32 {
        let exponent = self.exponent(logit);
        let weight = exp(exponent);
        if exponent < VANISHING { 0.0 } else { weight }
    }

    /// The weights of all tokens together.
    pub(super) fn mass(&self) -> f64 {
        self.logits.chunks(STRETCH).map(|stretch| self.mass_of(stretch)).sum()
    }

    fn mass_of(&self, stretch: &[f32]) -> f64 {
        let mut lanes = [0.0_f32; LANES];
        let (whole, rest) = stretch.as_chunks::<LANES>();
        for chunk in whole {
            for lane in 0..LANES {
                lanes[lane] += self.weight(chunk[lane]);
            }
        }
        lanes.iter().map(|lane| f64::from(*lane)).sum::<f64>()
            + rest.iter().map(|logit| f64::from(self.weight(*logit))).sum::<f64>()
    }

    /// The token at which the weights, added up in the order of ids, pass `share` of their mass.
    pub(super) fn draw(&self, share: f64, stretches: &mut Vec<f64>) -> u32 {
        stretches.clear();
        stretches.extend(self.logits.chunks(STRETCH).map(|stretch| self.mass_of(stretch)));
        let mut left = share * stretches.iter().sum::<f64>();
        let mut chosen = 0;
        for (index, mass) in stretches.iter().enumerate().filter(|(_, mass)| **mass > 0.0) {
            chosen = index;
            if left < *mass {
                break;
            }
            left -= mass;
        }
        let start = chosen * STRETCH;
        let weights = self.logits[start..].iter().take(STRETCH).map(|logit| self.weight(*logit));
        start as u32 + passing(weights, left)
    }
}

/// The index at which `weights` added up pass `left`; the last that weighs anything, should rounding leave a remainder.
pub(super) fn passing(weights: impl Iterator<Item = f32>, mut left: f64) -> u32 {
    let mut last = 0;
    for (index, weight) in weights.enumerate().filter(|(_, weight)| *weight > 0.0) {
        last = index as u32;
        left -= f64::from(weight);
        if left < 0.0 {
            break;
        }
    }
    last
}
