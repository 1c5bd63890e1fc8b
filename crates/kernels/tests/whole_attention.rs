//! Attention of whole texts on every instruction set against the specification in f64, and against itself in other batches.

use std::ops::Range;

use proptest::prelude::*;
use ropeway_kernels::attention::whole::{self, DistanceBias, Whole, WholeParams};
use ropeway_kernels::{Compute, Isa};

const HEADS: usize = 3;
const LONGEST: usize = 260;

/// Deterministic values in -2..2.
fn noise(seed: usize) -> f32 {
    let mut x = (seed as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    x = (x ^ (x >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((x >> 40) as f32 / (1u64 << 22) as f32) - 2.0
}

fn text(seed: usize, tokens: usize, dim: usize) -> Vec<f32> {
    (0..tokens * 3 * HEADS * dim).map(|i| noise(seed * 1_000_003 + i)).collect()
}

fn bias_table() -> Vec<f32> {
    (0..HEADS * (2 * LONGEST - 1)).map(|i| noise(i + 77)).collect()
}

/// Every text's result, all computed as one batch.
fn batch(isa: Isa, threads: usize, params: WholeParams<'_>, texts: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let width = HEADS * params.head_dim;
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for text in texts {
        let start = ranges.last().map_or(0, |range| range.end);
        ranges.push(start..start + text.len() / (3 * width));
    }
    let mut compute = Compute::new(isa, threads);
    compute.reserve_scratch(whole::scratch_bytes(LONGEST, params.head_dim));
    let projections = texts.concat();
    let mut out = vec![f32::NAN; projections.len() / 3];
    whole::attend(&mut compute, &Whole { params, projections: &projections, texts: &ranges }, &mut out);
    ranges.into_iter().map(|range| out[range.start * width..range.end * width].to_vec()).collect()
}

/// The specification: plain sums in f64.
fn specified(params: &WholeParams<'_>, text: &[f32]) -> Vec<f64> {
    let dim = params.head_dim;
    let tokens = text.len() / (3 * HEADS * dim);
    let vector = |position: usize, part: usize, head: usize| {
        &text[((position * 3 + part) * HEADS + head) * dim..][..dim]
    };
    let mut out = Vec::new();
    for i in 0..tokens {
        for head in 0..HEADS {
            let score = |j: usize| {
                let dot: f64 = vector(i, 0, head)
                    .iter()
                    .zip(vector(j, 1, head))
                    .map(|(q, k)| f64::from(*q) * f64::from(*k))
                    .sum();
                let bias = params.bias.map_or(0.0, |bias| {
                    f64::from(bias.values[head * (2 * bias.longest - 1) + j + bias.longest - 1 - i])
                });
                dot * f64::from(params.scale) + bias
            };
            let seen: Vec<usize> =
                (0..tokens).filter(|j| params.reach.is_none_or(|reach| i.abs_diff(*j) <= reach)).collect();
            let weights: Vec<f64> = seen.iter().map(|j| score(*j).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..dim {
                let value = |(j, weight): (&usize, &f64)| weight / sum * f64::from(vector(*j, 2, head)[d]);
                out.push(seen.iter().zip(&weights).map(value).sum());
            }
        }
    }
    out
}

#[test]
fn every_instruction_set_matches_the_specification() {
    let table = bias_table();
    let bias = Some(DistanceBias { values: &table, longest: LONGEST });
    for isa in Isa::available() {
        for (dim, reach, bias) in
            [(32, None, None), (64, Some(9), None), (16, None, bias), (40, Some(64), bias)]
        {
            let params = WholeParams { heads: HEADS, head_dim: dim, scale: 0.2, reach, bias };
            let texts: Vec<_> = [1, 5, 32, 33, 100, 203].iter().map(|&n| text(n, n, dim)).collect();
            for (text, got) in texts.iter().zip(batch(isa, 2, params, &texts)) {
                for (want, got) in specified(&params, text).iter().zip(got) {
                    assert!((want - f64::from(got)).abs() < 5e-6, "{isa} {dim} {reach:?}: {got} {want}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_text_has_the_same_bits_alone_and_in_any_company(
        lengths in prop::collection::vec(1..120usize, 1..9), threads in 1..4usize, reach in prop::option::of(0..40usize)
    ) {
        for isa in Isa::available() {
            let params = WholeParams { heads: HEADS, head_dim: 32, scale: 0.3, reach, bias: None };
            let texts: Vec<_> = lengths.iter().enumerate().map(|(seed, &n)| text(seed, n, 32)).collect();
            let together = batch(isa, threads, params, &texts);
            for (text, together) in texts.iter().zip(together) {
                let alone = batch(isa, 1, params, std::slice::from_ref(text)).remove(0);
                let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(&alone), bits(&together));
            }
        }
    }
}

#[test]
fn what_scratch_held_before_leaves_no_trace() {
    let params = WholeParams { heads: HEADS, head_dim: 32, scale: 0.2, reach: None, bias: None };
    let mut poison = text(1, 200, 32);
    poison.fill(f32::NAN);
    let clean = text(2, 40, 32);
    for isa in Isa::available() {
        let after = batch(isa, 1, params, &[poison.clone(), clean.clone()]).remove(1);
        assert!(after.iter().all(|x| x.is_finite()), "{isa}");
    }
}
