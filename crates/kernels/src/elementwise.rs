//! Loops over rows: norms, activations. Plain Rust written in lanes, so that each instruction set
//! vectorises the same source; a row's result depends on that row alone.

/// Lanes of every reduction: the order of additions is fixed by this number, not by the register width.
const LANES: usize = 16;

/// Nonlinearity of an MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// Gaussian error linear unit, tanh approximation.
    GeluTanh,
    /// Gaussian error linear unit, exact.
    Gelu,
}

impl Activation {
    /// Its value at `x`.
    #[inline(always)]
    pub fn apply(self, x: f32) -> f32 {
        match self {
            Self::Silu => x / (1.0 + exp(-x)),
            Self::GeluTanh => {
                let inner = 0.797_884_6 * (x + 0.044_715 * x * x * x);
                0.5 * x * (1.0 + tanh(inner))
            }
            Self::Gelu => 0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)),
        }
    }
}

/// `2^x` for any x, to 2e-7 relative; 0 below 2^-126 and infinity above the range.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    // Round to the nearest integer n by the mantissa trick, so |f| <= 0.5; then 2^n by exponent bits.
    const MAGIC: f32 = 12_582_912.0;
    let clamped = if x < -127.0 { -127.0 } else { x };
    let clamped = if clamped > 128.0 { 128.0 } else { clamped };
    let shifted = clamped + MAGIC;
    let n = shifted.to_bits() as i32 - MAGIC.to_bits() as i32;
    let f = clamped - (shifted - MAGIC);
    let p = exp2_fraction(f);
    // 2^n in two factors: n = 128 would overflow one exponent field, n = -127 would be zero.
    let half = n >> 1;
    let scale = |e: i32| f32::from_bits(((e + 127) as u32) << 23);
    p * scale(half) * scale(n - half)
}

/// `2^f` on |f| <= 0.5: the polynomial of degree 5 with the least relative error (9e-8), exact at 0.
#[inline(always)]
#[allow(clippy::approx_constant, reason = "a fitted coefficient near ln 2, not ln 2")]
fn exp2_fraction(f: f32) -> f32 {
    let mut p = 1.326_472_7e-3;
    p = p * f + 9.671_513e-3;
    p = p * f + 5.550_733_7e-2;
    p = p * f + 2.402_224_2e-1;
    p = p * f + 6.931_47e-1;
    p * f + 1.0
}

/// `e^x`.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    exp2(x * std::f32::consts::LOG2_E)
}

/// Hyperbolic tangent by `exp`.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let e = exp(-2.0 * x.abs());
    let t = (1.0 - e) / (1.0 + e);
    t.copysign(x)
}

/// Error function (Abramowitz and Stegun 7.1.26, 1.5e-7 absolute).
#[inline(always)]
fn erf(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let p = ((((1.061_405_4 * t - 1.453_152) * t + 1.421_413_7) * t - 0.284_496_74) * t + 0.254_829_6) * t;
    (1.0 - p * exp(-x * x)).copysign(x)
}

/// Sum in fixed lanes: `LANES` running sums, then a balanced tree.
#[inline(always)]
fn lane_sum(values: impl Fn(usize) -> f32, len: usize) -> f32 {
    let mut lanes = [0f32; LANES];
    let whole = len / LANES * LANES;
    let mut start = 0;
    while start < whole {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += values(start + lane);
        }
        start += LANES;
    }
    for index in whole..len {
        lanes[index - whole] += values(index);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// `out = x / rms(x) * (offset + weight)`.
#[inline(always)]
pub fn rms_norm(x: &[f32], weight: &[f32], norm: Norm, out: &mut [f32]) {
    let len = out.len();
    let (x, weight) = (&x[..len], &weight[..len]);
    let inverse = inverse_rms(x, norm);
    for i in 0..len {
        out[i] = x[i] * inverse * (norm.offset + weight[i]);
    }
}

/// `x = (x - mean) / deviation * weight + bias`.
#[inline(always)]
pub fn layer_norm(x: &mut [f32], by: LayerNorm<'_>) {
    let len = x.len();
    let weight = &by.weight[..len];
    let (mean, inverse) = moments(x, by.eps);
    match by.bias {
        Some(bias) => {
            let bias = &bias[..len];
            for i in 0..len {
                x[i] = (x[i] - mean) * inverse * weight[i] + bias[i];
            }
        }
        None => {
            for i in 0..len {
                x[i] = (x[i] - mean) * inverse * weight[i];
            }
        }
    }
}

/// Mean, and one over the deviation.
#[inline(always)]
fn moments(x: &[f32], eps: f32) -> (f32, f32) {
    let len = x.len() as f32;
    let mean = lane_sum(|i| x[i], x.len()) / len;
    let variance = lane_sum(|i| (x[i] - mean) * (x[i] - mean), x.len()) / len;
    (mean, 1.0 / (variance + eps).sqrt())
}

/// [`rms_norm`] of a row onto itself.
#[inline(always)]
pub fn rms_norm_in_place(x: &mut [f32], weight: &[f32], norm: Norm) {
    let inverse = inverse_rms(x, norm);
    for (value, weight) in x.iter_mut().zip(weight) {
        *value *= inverse * (norm.offset + weight);
    }
}

#[inline(always)]
fn inverse_rms(x: &[f32], norm: Norm) -> f32 {
    let mean = sum_of_squares(x) / x.len() as f32;
    1.0 / (mean + norm.eps).sqrt()
}

#[inline(always)]
pub(crate) fn sum_of_squares(x: &[f32]) -> f32 {
    lane_sum(|i| x[i] * x[i], x.len())
}

/// Constants of a root-mean-square norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Added to the mean square.
    pub eps: f32,
    /// Added to every weight (1 in checkpoints that store `weight - 1`).
    pub offset: f32,
}

/// A norm that also takes the mean away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm<'a> {
    /// One per column.
    pub weight: &'a [f32],
    /// One per column, if there.
    pub bias: Option<&'a [f32]>,
    /// Added to the variance.
    pub eps: f32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp2_is_accurate_over_the_whole_range() {
        for i in -1260..1270 {
            let x = i as f32 * 0.1 + 0.013;
            let want = f64::from(x).exp2();
            let got = f64::from(exp2(x));
            assert!((got - want).abs() <= want * 3e-7, "2^{x}: {got} {want}");
        }
        assert_eq!(exp2(0.0), 1.0);
        assert_eq!(exp2(f32::NEG_INFINITY), 2f32.powi(-127));
        assert!(exp2(1000.0).is_infinite());
    }

    #[test]
    fn activations_match_their_definitions() {
        for i in -80..80 {
            let x = i as f32 * 0.1;
            let wide = f64::from(x);
            let silu = wide / (1.0 + (-wide).exp());
            let gelu = 0.5 * wide * (1.0 + (0.797_884_560_8 * (wide + 0.044_715 * wide.powi(3))).tanh());
            assert!((f64::from(Activation::Silu.apply(x)) - silu).abs() < 1e-6);
            assert!((f64::from(Activation::GeluTanh.apply(x)) - gelu).abs() < 2e-6);
            assert!((f64::from(Activation::Gelu.apply(x)) - gelu).abs() < 1e-3);
        }
    }

    /// The error function in f64: its Taylor series, which converges everywhere and cancels little below 4.
    fn erf_in_f64(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            let n = f64::from(n);
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    }

    #[test]
    fn exact_gelu_is_exact_to_single_precision() {
        for i in -4000..4000 {
            let x = i as f32 * 1e-3;
            let wide = f64::from(x);
            let want = 0.5 * wide * (1.0 + erf_in_f64(wide * std::f64::consts::FRAC_1_SQRT_2));
            let got = f64::from(Activation::Gelu.apply(x));
            assert!((got - want).abs() <= 5e-7 * wide.abs().max(1.0), "{x}: {got} {want}");
        }
    }

    #[test]
    fn layer_norm_matches_f64_on_every_instruction_set() {
        for isa in crate::Isa::available() {
            for len in [7, 32, 77, 384] {
                let mut x: Vec<f32> = (0..len).map(|i| (i as f32 * 0.7).sin() * 3.0 + 5.0).collect();
                let weight: Vec<f32> = (0..len).map(|i| 0.5 + i as f32 * 0.01).collect();
                let bias: Vec<f32> = (0..len).map(|i| i as f32 * 0.02 - 1.0).collect();
                let mean = x.iter().map(|&v| f64::from(v)).sum::<f64>() / len as f64;
                let variance = x.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / len as f64;
                let want: Vec<f64> = (0..len)
                    .map(|i| (f64::from(x[i]) - mean) / (variance + 1e-12).sqrt() * f64::from(weight[i]))
                    .collect();
                let mut plain = x.clone();
                let by = LayerNorm { weight: &weight, bias: None, eps: 1e-12 };
                crate::vectorise::vectorised(isa, || layer_norm(&mut plain, by));
                let by = LayerNorm { bias: Some(&bias), ..by };
                crate::vectorise::vectorised(isa, || layer_norm(&mut x, by));
                for i in 0..len {
                    assert!((f64::from(plain[i]) - want[i]).abs() < 2e-5, "{isa} {len} {i}");
                    assert!((f64::from(x[i]) - want[i] - f64::from(bias[i])).abs() < 2e-5, "{isa} {len} {i}");
                }
            }
        }
    }

    #[test]
    fn rms_norm_matches_f64() {
        let x: Vec<f32> = (0..77).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
        let w: Vec<f32> = (0..77).map(|i| 0.5 + i as f32 * 0.01).collect();
        let mut out = vec![0.0; 77];
        rms_norm(&x, &w, Norm { eps: 1e-5, offset: 1.0 }, &mut out);
        let mean = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / 77.0;
        for i in 0..77 {
            let want = f64::from(x[i]) / (mean + 1e-5).sqrt() * (1.0 + f64::from(w[i]));
            assert!((f64::from(out[i]) - want).abs() < 1e-5);
        }
    }
}
