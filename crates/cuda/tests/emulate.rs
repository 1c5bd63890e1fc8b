//! The whole executor on an emulated GPU: every family against transformers' logits, and a row's bits in any company.

mod emulator;
mod fixtures;

use fixtures::{Case, cases};
use ropeway_cuda::{CudaExecutor, CudaOptions};
use ropeway_executor::{Batch, BlockId, Executor, SamplingParams, StepOutput};

fn open(case: &Case, options: &CudaOptions) -> CudaExecutor {
    let options = CudaOptions { context: case.context(), ..options.clone() };
    CudaExecutor::load(case.checkpoint(), options, &mut |_, _| {})
        .unwrap_or_else(|error| panic!("{}: {error}", case.path))
}

fn table() -> Vec<BlockId> {
    vec![BlockId(1), BlockId(0)]
}

/// Logits of every token of a prompt.
fn all_logits(executor: &mut CudaExecutor, prompt: &[u32]) -> Vec<Vec<f32>> {
    let mut batch = Batch::default();
    batch.push_chunk(prompt, 0, &table());
    for token in 0..prompt.len() {
        batch.score(token, 0, &SamplingParams::greedy());
    }
    executor.execute(&batch, &mut StepOutput::default()).expect("a step");
    executor.logits(prompt.len()).expect("logits")
}

#[test]
fn every_family_and_file_format_agrees_with_transformers_as_far_as_bf16_goes() {
    let Some(options) = emulator::options() else { return };
    for case in cases() {
        let mut executor = open(&case, &options);
        let error = case.error(&all_logits(&mut executor, &case.prompt()));
        println!("{}: relative error {error:.1e}", case.path);
        // Random models of 32 to 64 columns: nothing averages out what 8 bits of a mantissa round away.
        assert!(error < 0.15, "{}: {error}", case.path);
    }
}
