//! What happens when the device is lost or too small. A process of its own: a lost device is lost for all tests of a process.

mod emulator;
mod fixtures;

use ropeway_cuda::{CudaExecutor, CudaOptions};
use ropeway_executor::{Batch, BlockId, Executor, ExecutorError, History, SamplingParams, StepOutput};

fn batch() -> Batch {
    let mut batch = Batch::default();
    batch.push_chunk(&[1, 2, 3], 0, &[BlockId(0)]);
    batch.sample_last(&SamplingParams { logprobs: Some(2), ..SamplingParams::greedy() }, History::default());
    batch
}

#[test]
fn a_lost_device_fails_its_step_and_computes_the_same_after_a_restart() {
    let Some(options) = emulator::options() else { return };
    let case = fixtures::cases().remove(0);
    let mut executor = CudaExecutor::load(&case.checkpoint(), options, &mut |_, _| {}).expect("a model");
    let (mut before, mut after) = (StepOutput::default(), StepOutput::default());
    executor.execute(&batch(), &mut before).expect("a step");
    assert!(!before.device.is_zero(), "the device took some time");

    std::fs::write(emulator::loss(), b"").expect("a file");
    let lost = executor.execute(&batch(), &mut after).expect_err("the device is lost");
    assert!(matches!(lost, ExecutorError::Lost(_)), "{lost}");
    std::fs::remove_file(emulator::loss()).expect("the file");
    let still = executor.execute(&batch(), &mut after).expect_err("it was not restarted");
    assert!(matches!(still, ExecutorError::Lost(_)), "{still}");

    executor.restart().expect("a restart");
    executor.execute(&batch(), &mut after).expect("a step");
    assert_eq!(before.rows, after.rows);
}

#[test]
fn a_model_that_does_not_fit_is_told_what_is_needed_and_what_would_fit() {
    let Some(options) = emulator::options() else { return };
    let case = fixtures::cases().remove(0);
    let options = CudaOptions { kv_tokens: Some(1 << 30), ..options };
    let error = CudaExecutor::load(&case.checkpoint(), options, &mut |_, _| {}).err().expect("too much");
    let text = error.to_string();
    assert!(text.contains("the GPU has 0.5 GB free"), "{text}");
    assert!(text.contains("tokens of keys and values would fit"), "{text}");
}
