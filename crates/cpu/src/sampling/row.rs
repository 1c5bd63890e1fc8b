//! One row of logits under a temperature: weights, their mass, and draws from all of it.
//!
//! A token's weight is `exp((logit - most) / temperature)`, so that the likeliest weighs 1 and nothing overflows.

use ropeway_kernels::Isa;
use ropeway_kernels::elementwise::exp;
use ropeway_kernels::vectorise::{Loop, vectorised};

/// Lanes of every reduction: the order of additions is fixed by this number, not by the register width.
const LANES: usize = 16;

/// Tokens that are looked at together: what was learnt about each stretch spares a second look at all of them.
const STRETCH: usize = 1024;

/// Exponents below this weigh nothing: `exp` of them is below the smallest normal number.
const VANISHING: f32 = -87.0;

/// The largest logit of a row, and the stretch in which it stands first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peak {
    /// Its value; minus infinity when every token is masked.
    pub(super) logit: f32,
    start: usize,
}

impl Peak {
    /// The peak in one pass, or `None` when the row is empty, or holds NaN or plus infinity.
    pub(super) fn of(isa: Isa, logits: &[f32]) -> Option<Self> {
        let mut peak = Self { logit: f32::NEG_INFINITY, start: 0 };
        for (index, stretch) in logits.chunks(STRETCH).enumerate() {
            let most = vectorised(isa, Largest(stretch))?;
            if most > peak.logit {
                peak = Self { logit: most, start: index * STRETCH };
            }
        }
        (!logits.is_empty()).then_some(peak)
    }

    /// The first token that reaches it; `logits` is the row it was found in.
    pub(super) fn token(&self, logits: &[f32]) -> u32 {
        let within = logits[self.start..].iter().position(|logit| *logit >= self.logit);
        (self.start + within.unwrap_or_default()) as u32
    }
}

/// The largest of some logits that are known to be usable: a quick look at whether a piece holds anything of interest.
pub(super) fn highest(isa: Isa, piece: &[f32]) -> f32 {
    vectorised(isa, Largest(piece)).unwrap_or(f32::INFINITY)
}

/// The largest of some logits, or `None` when NaN or plus infinity is among them.
struct Largest<'a>(&'a [f32]);

impl Loop for Largest<'_> {
    type Output = Option<f32>;

    #[inline(always)]
    fn run(self) -> Option<f32> {
        let mut most = [f32::NEG_INFINITY; LANES];
        let mut below_infinity = [u32::MAX; LANES];
        let (whole, rest) = self.0.as_chunks::<LANES>();
        for chunk in whole {
            for lane in 0..LANES {
                // One comparison finds both: NaN and plus infinity are the only values not below infinity.
                below_infinity[lane] &= mask(chunk[lane] < f32::INFINITY);
                most[lane] = larger(chunk[lane], most[lane]);
            }
        }
        for lane in 0..rest.len() {
            below_infinity[lane] &= mask(rest[lane] < f32::INFINITY);
            most[lane] = larger(rest[lane], most[lane]);
        }
        let (mut usable, mut top) = (u32::MAX, f32::NEG_INFINITY);
        for lane in 0..LANES {
            usable &= below_infinity[lane];
            top = larger(most[lane], top);
        }
        (usable != 0).then_some(top)
    }
}

/// All bits or none: what a vector comparison gives.
#[inline(always)]
fn mask(condition: bool) -> u32 {
    if condition { u32::MAX } else { 0 }
}

/// The larger of two numbers in one instruction, which `f32::max` is not.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// Logits with the two numbers that turn them into weights.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    /// The logits; minus infinity excludes a token.
    pub(super) logits: &'a [f32],
    /// Whose instructions its loops use.
    pub(super) isa: Isa,
    most: f32,
    /// Finite and above zero, so that no exponent is NaN.
    inverse_temperature: f32,
}

impl<'a> Row<'a> {
    /// A row whose peak is finite; `temperature` is above zero.
    pub(super) fn new(isa: Isa, logits: &'a [f32], peak: Peak, temperature: f32) -> Self {
        debug_assert!(peak.logit.is_finite() && temperature > 0.0);
        let inverse_temperature = temperature.recip().clamp(f32::MIN_POSITIVE, f32::MAX);
        Self { logits, isa, most: peak.logit, inverse_temperature }
    }

    /// The logarithm of a weight: at most 0.
    #[inline(always)]
    pub(super) fn exponent(&self, logit: f32) -> f32 {
        (logit - self.most) * self.inverse_temperature
    }

    /// The weight of a logit: at most 1.
    #[inline(always)]
    pub(super) fn weight(&self, logit: f32) -> f32 {
        let exponent = self.exponent(logit);
        let weight = exp(exponent);
        if exponent < VANISHING { 0.0 } else { weight }
    }

    /// The logarithm of what all weights add up to, for logits as they are (temperature 1): `log(sum(exp(logit)))`.
    pub(super) fn normaliser(&self) -> f32 {
        self.most + self.mass().ln() as f32
    }

    /// The weights of all tokens together.
    pub(super) fn mass(&self) -> f64 {
        self.logits.chunks(STRETCH).map(|stretch| self.mass_of(stretch)).sum()
    }

    fn mass_of(&self, stretch: &[f32]) -> f64 {
        let (whole, rest) = stretch.as_chunks::<LANES>();
        let lanes = vectorised(self.isa, WeightLanes { row: self, chunks: whole });
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

/// The weights of some logits, added up lane by lane.
struct WeightLanes<'a> {
    row: &'a Row<'a>,
    chunks: &'a [[f32; LANES]],
}

impl Loop for WeightLanes<'_> {
    type Output = [f32; LANES];

    #[inline(always)]
    fn run(self) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        for chunk in self.chunks {
            for lane in 0..LANES {
                lanes[lane] += self.row.weight(chunk[lane]);
            }
        }
        lanes
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
