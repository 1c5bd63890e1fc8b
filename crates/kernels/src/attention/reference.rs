//! The specification of attention, in f64 on plain arrays: no blocks, no tiles, no rounding.

use super::AttentionParams;

/// One query against all keys it sees: `keys` and `values` are those of its KV head, oldest first, up to and
/// including the query's own position.
pub fn attend(q: &[f32], keys: &[&[f32]], values: &[&[f32]], params: &AttentionParams) -> Vec<f64> {
    let first = params.window.map_or(0, |window| keys.len().saturating_sub(window));
    let score = |key: &&[f32]| {
        let dot: f64 = q.iter().zip(*key).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        let score = dot * f64::from(params.scale);
        params.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
    };
    let scores: Vec<f64> = keys[first..].iter().map(score).collect();
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let mut out = vec![0.0; q.len()];
    for (weight, value) in weights.iter().zip(&values[first..]) {
        for (out, v) in out.iter_mut().zip(*value) {
            *out += weight / sum * f64::from(*v);
        }
    }
    out
}
