//! What happens when the device is lost or too small. A process of its own: all of its tests share one emulated device, and take turns.

mod emulator;
mod fixtures;

use std::sync::{Mutex, MutexGuard, PoisonError};

use ropeway_cuda::{CudaExecutor, CudaOptions};
use ropeway_engine::{Device, FinishReason, Request, SequenceError, Settings, spawn};
use ropeway_executor::{Batch, BlockId, Executor, ExecutorError, History, SamplingParams, StepOutput};

/// Held by the test whose turn it is.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn batch() -> Batch {
    let mut batch = Batch::default();
    batch.push_chunk(&[1, 2, 3], 0, &[BlockId(0)]);
    batch.sample_last(&SamplingParams { logprobs: Some(2), ..SamplingParams::greedy() }, History::default());
    batch
}

fn load(options: &CudaOptions) -> CudaExecutor {
    let case = fixtures::cases().remove(0);
    CudaExecutor::load(&case.checkpoint(), options.clone(), &mut |_, _| {}).expect("a model")
}

fn lose(how: &str) {
    std::fs::write(emulator::loss(), how).expect("a file");
}

#[test]
fn a_lost_device_fails_its_step_and_computes_the_same_after_a_restart() {
    let (Some(options), _turn) = (emulator::options(), turn()) else { return };
    // Most of what is free: the engine goes on with as many blocks as it knows of.
    let mut executor = load(&CudaOptions { kv_tokens: None, ..options });
    let limits = executor.limits();
    let (mut before, mut after) = (StepOutput::default(), StepOutput::default());
    executor.execute(&batch(), &mut before).expect("a step");
    assert!(!before.device.is_zero(), "the device took some time");

    lose("once");
    let lost = executor.execute(&batch(), &mut after).expect_err("the device is lost");
    assert!(matches!(lost, ExecutorError::Lost(_)), "{lost}");
    let still = executor.execute(&batch(), &mut after).expect_err("it was not restarted");
    assert!(matches!(still, ExecutorError::Lost(_)), "{still}");
    assert_eq!(executor.limits(), limits);

    std::fs::write(emulator::memory(), format!("{}", (512 << 20) - (1 << 20))).expect("a file");
    let restarted = executor.restart();
    std::fs::remove_file(emulator::memory()).expect("the file");
    restarted.expect("room for as much as before, though a little less is free");
    assert_eq!(executor.limits(), limits);
    executor.execute(&batch(), &mut after).expect("a step");
    assert_eq!(before.rows, after.rows);
}

#[test]
fn answers_survive_a_loss_a_second_one_ends_them_and_a_third_one_the_engine() {
    let (Some(options), _turn) = (emulator::options(), turn()) else { return };
    let (handle, thread) = spawn(Box::new(load(&options)), &Settings::default());
    let ask = || handle.submit(Request::greedy((0..20).collect(), 6)).expect("a request").collect();
    let whole = ask();
    assert_eq!(whole.reason, FinishReason::Length);

    lose("once");
    assert_eq!(ask().tokens, whole.tokens, "the same bits on a device that was started again");
    assert_eq!((handle.board().device(), handle.board().metrics().restarts), (Device::Working, 1));
    lose("once");
    assert!(matches!(ask().reason, FinishReason::Failed(SequenceError::Step(_))));
    assert_eq!(ask().tokens, whole.tokens, "the next one is answered");
    lose("once");
    assert_eq!(ask().reason, FinishReason::Failed(SequenceError::EngineGone));
    assert_eq!(handle.board().device(), Device::Lost);
    assert!(handle.board().loss().expect("a reason").contains("3 times in a row"));
    assert!(thread.join().is_err(), "whoever looks after the engine is told");
}

#[test]
fn a_device_that_can_t_be_restarted_ends_everyone() {
    let (Some(options), _turn) = (emulator::options(), turn()) else { return };
    let (handle, thread) = spawn(Box::new(load(&options)), &Settings::default());
    lose("always");
    let reason = handle.submit(Request::greedy(vec![1, 2, 3], 6)).expect("a request").collect().reason;
    std::fs::remove_file(emulator::loss()).expect("the file");
    assert_eq!(
        (reason, handle.board().device()),
        (FinishReason::Failed(SequenceError::EngineGone), Device::Lost)
    );
    assert!(handle.board().loss().expect("a reason").contains("could not be restarted"));
    assert!(thread.join().is_err(), "whoever looks after the engine is told");
}

/// What loading says where the device has so many bytes.
fn refusal(options: &CudaOptions, memory: usize, kv_tokens: Option<usize>) -> String {
    std::fs::write(emulator::memory(), memory.to_string()).expect("a file");
    let case = fixtures::cases().remove(0);
    let options = CudaOptions { kv_tokens, ..options.clone() };
    let error = CudaExecutor::load(&case.checkpoint(), options, &mut |_, _| {}).err();
    std::fs::remove_file(emulator::memory()).expect("the file");
    error.expect("too little memory").to_string()
}

#[test]
fn a_model_that_does_not_fit_is_told_what_is_needed_and_what_would_fit() {
    let (Some(options), _turn) = (emulator::options(), turn()) else { return };
    let none = refusal(&options, 1 << 20, None);
    assert!(none.contains("the GPU has 0.0 GB free") && none.contains("`--device cpu`"), "{none}");
    let much = refusal(&options, 512 << 20, Some(1 << 30));
    assert!(much.contains("the GPU has 0.5 GB free") && much.contains("--kv-memory"), "{much}");
    let words: Vec<&str> = much.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "tokens").expect("what was asked for");
    let fits =
        words[at + 1..].windows(2).find_map(|pair| (pair[1] == "tokens").then(|| pair[0].parse().ok())?);
    let fits: usize = fits.expect("a number of tokens");
    // What it says would fit does, and a block more does not.
    let executor = load(&CudaOptions { kv_tokens: Some(fits), ..options.clone() });
    assert_eq!(executor.limits().blocks * executor.limits().block_tokens, fits);
    refusal(&options, 512 << 20, Some(fits + 1));
}
