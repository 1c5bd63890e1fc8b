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

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

/// One case per head dimension and kind of layer; the others differ in data only.
fn some_cases() -> Vec<Case> {
    let chosen = ["llama", "gemma2", "qwen3-moe", "llama-rope-dynamic"];
    cases().into_iter().filter(|case| chosen.contains(&case.path.as_str())).collect()
}

#[test]
fn chunks_and_company_leave_a_row_s_bits_as_they_are() {
    let Some(options) = emulator::options() else { return };
    for case in some_cases() {
        let mut executor = open(&case, &options);
        let prompt = case.prompt();
        let whole = all_logits(&mut executor, &prompt);
        for chunk in [1, 5, 17] {
            for start in (0..prompt.len()).step_by(chunk) {
                let end = (start + chunk).min(prompt.len());
                let mut batch = Batch::default();
                // Another sequence's prompt beside it.
                batch.push_chunk(&prompt[..chunk.min(prompt.len())], 0, &[BlockId(5)]);
                batch.push_chunk(&prompt[start..end], start, &table());
                batch.score(batch.tokens.len() - 1, 0, &SamplingParams::greedy());
                executor.execute(&batch, &mut StepOutput::default()).expect("a step");
                let row = executor.logits(1).expect("logits").remove(0);
                assert_eq!(bits(&row), bits(&whole[end - 1]), "{} {chunk} {start}", case.path);
            }
        }
    }
}
