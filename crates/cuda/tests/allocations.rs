//! A step allocates nothing on the host once everything has its size. In a test binary of its own: it counts every allocation of the
//! process. (The emulator itself is C++ and does not count.)

#[path = "../../../tests/counting_allocations.rs"]
mod counting;
mod emulator;
mod fixtures;

use fixtures::cases;
use ropeway_cuda::{CudaExecutor, CudaOptions};
use ropeway_executor::{Batch, BlockId, Executor, History, SamplingParams, Seed, StepOutput, Unguided};

/// Streams that are greedy, draw, are penalised and biased, and a prompt's chunk beside them.
fn batch(streams: u32, prompt: usize) -> Batch {
    let mut batch = Batch::default();
    for stream in 0..streams {
        batch.push_chunk(&[stream + 3], 0, &[BlockId(stream)]);
        let drawn = SamplingParams { seed: Seed(stream.into()), top_p: 0.9, ..SamplingParams::default() };
        let params = match stream % 4 {
            0 => SamplingParams::greedy(),
            1 => drawn,
            2 => SamplingParams { repetition_penalty: 1.1, ..drawn },
            _ => SamplingParams { logit_bias: [(7, 2.0), (9, -1.0)].into(), ..drawn },
        };
        batch.sample_last(&params, History { prompt: &[4, 5, 6], ..History::default() });
    }
    if prompt > 0 {
        let tokens: Vec<u32> = (0..prompt as u32).collect();
        batch.push_chunk(&tokens, 0, &[BlockId(60), BlockId(61)]);
    }
    batch
}

/// Allocations of a step that was computed before.
fn allocations(executor: &mut CudaExecutor, batch: &Batch) -> usize {
    let mut output = StepOutput::default();
    let mut step = || {
        let before = counting::allocations();
        executor.launch(batch, &Unguided).expect("a step");
        executor.collect(&Unguided, &mut output).expect("a step");
        assert!(output.rows.iter().all(Result::is_ok));
        counting::allocations() - before
    };
    for _ in 0..3 {
        step();
    }
    step()
}

#[test]
fn a_step_allocates_nothing_once_warm() {
    let Some(options) = emulator::options() else { return };
    let options = CudaOptions { kv_tokens: Some(64 * 32), ..options };
    for name in ["llama", "qwen3-moe"] {
        let case = cases().into_iter().find(|case| case.path == name).expect("a family");
        let options = CudaOptions { context: case.context(), ..options.clone() };
        let mut executor = CudaExecutor::load(&case.checkpoint(), options, &mut |_, _| {}).expect("a model");
        for (streams, prompt) in [(1, 0), (12, 0), (12, 40), (0, 50)] {
            let count = allocations(&mut executor, &batch(streams, prompt));
            assert_eq!(count, 0, "{name}: {streams} streams, {prompt} tokens of a prompt");
        }
    }
}
