//! Sampling parameters of every kind, for comparisons with the CPU's sampler: on a GPU, and on the emulated one of the tests.

use ropeway_executor::{SamplingParams, Seed};

/// Those of a row; kinds alternate from row to row.
pub fn params(row: usize) -> SamplingParams {
    let temperature = 0.3 + (row % 7) as f32 * 0.2;
    let base = SamplingParams { seed: Seed(row as u64), temperature, ..SamplingParams::default() };
    match row % 13 {
        0 => SamplingParams::greedy(),
        1 => base,
        2 => SamplingParams { top_k: 40, ..base },
        3 => SamplingParams { top_p: 0.9, logprobs: Some(5), ..base },
        4 => SamplingParams { min_p: 0.05, ..base },
        5 => SamplingParams { typical_p: 0.7, ..base },
        6 => SamplingParams { top_k: 100, typical_p: 0.8, top_p: 0.9, min_p: 0.02, ..base },
        7 => SamplingParams {
            repetition_penalty: 1.3,
            presence_penalty: 0.5,
            frequency_penalty: 0.2,
            logprobs: Some(3),
            ..base
        },
        8 => SamplingParams { logit_bias: [(5, 20.0), (7, -100.0), (5, 1.0)].into(), ..base },
        9 => SamplingParams { allowed: Some((100..200).collect()), logprobs: Some(20), ..base },
        10 => SamplingParams { repetition_penalty: 1.1, penalty_window: Some(8), top_p: 0.5, ..base },
        11 => SamplingParams { allowed: Some([5000].into()), ..base },
        _ => SamplingParams { logprobs: Some(0), ..SamplingParams::greedy() },
    }
}
