//! Sampling on the device against the CPU's sampler, row by row on the same logits.

use ropeway_cpu::sampling::{Sampler, Tokens};
use ropeway_cuda::CudaOptions;
use ropeway_executor::{Batch, BlockId, Executor, History, SamplingParams, Seed, StepOutput};
use ropeway_kernels::Isa;

use crate::models::MODELS;
use crate::{Failed, Task};

/// Rows of every kind.
const ROWS: usize = 240;

pub fn check(task: &Task) -> Result<(), Failed> {
    let options = CudaOptions { kv_tokens: Some(ROWS * 64), ..task.options.clone() };
    let mut executor = MODELS[0].open(&options)?;
    let (mut batch, mut output) = (Batch::default(), StepOutput::default());
    let history: Vec<u32> = (0..50).map(|index| index * 31 % 49).collect();
    for row in 0..ROWS {
        batch.push_chunk(&[row as u32 * 7, 11, 13], 0, &[BlockId(row as u32)]);
        let history = History { prompt: &history[..20], answer: &history[20..], drafted: &[] };
        batch.sample_last(&params(row), history);
    }
    executor.execute(&batch, &mut output)?;
    let mut sampler = Sampler::new(Isa::best());
    let (mut same, mut worst) = (0, 0f32);
    for (index, (row, mut logits)) in batch.rows.iter().zip(executor.logits(ROWS)?).enumerate() {
        let tokens = Tokens { all: &batch.history[row.history.clone()], prompt: row.prompt };
        let want = sampler.sample(&mut logits, &row.params, tokens, row.position);
        match (&want, &output.rows[index]) {
            (Ok(want), Ok(got)) => {
                same += usize::from(want.token == got.token);
                worst = worst.max((want.logprob - got.logprob).abs());
                for (want, got) in want.top.iter().zip(&got.top) {
                    worst = worst.max(if want.0 == got.0 { (want.1 - got.1).abs() } else { f32::INFINITY });
                }
            }
            (want, got) => same += usize::from(want == got),
        }
    }
    println!(
        "RES sampling: {same} of {ROWS} rows as on the CPU; log-probabilities differ by {worst:.1e} at most"
    );
    // A draw may fall between two tokens' rounding once in a million.
    if same == ROWS && worst < 1e-4 {
        Ok(())
    } else {
        Err(Failed::Wrong("the device samples otherwise".into()))
    }
}

fn params(row: usize) -> SamplingParams {
    let base = SamplingParams {
        seed: Seed(row as u64),
        temperature: 0.3 + row as f32 % 7.0 * 0.2,
        ..SamplingParams::default()
    };
    match row % 12 {
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
        _ => SamplingParams { logprobs: Some(0), ..SamplingParams::greedy() },
    }
}
