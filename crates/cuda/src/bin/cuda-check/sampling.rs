//! Sampling on the device against the CPU's sampler, row by row on the same logits.

use ropeway_cpu::sampling::{Sampler, Tokens};
use ropeway_cuda::CudaOptions;
use ropeway_executor::{Batch, BlockId, Executor, History, StepOutput};
use ropeway_kernels::Isa;

use crate::models::MODELS;
use crate::{Failed, Task, every_filter};

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
        batch.sample_last(&every_filter::params(row), history);
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
