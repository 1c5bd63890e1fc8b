//! A lost device: a kernel reads an illegal address; the model has to notice, and to compute the same as before when it is loaded again:
//! in the same process if the driver still serves it, else in a new program, as `ropeway serve` becomes one.

use std::os::unix::process::CommandExt;
use std::process::Command;

use ropeway_cuda::driver::{Address, LaunchShape};
use ropeway_cuda::kernels::Randomise;
use ropeway_cuda::{CudaError, CudaExecutor, CudaOptions, needs_new_process};
use ropeway_executor::{
    Batch, BlockId, Executor, ExecutorError, History, RowResult, SamplingParams, StepOutput,
};

use crate::models::MODELS;
use crate::{Failed, Task};

/// What the program before computed.
const BEFORE: &str = "ROPEWAY_ROWS_BEFORE";

pub fn check(task: &Task) -> Result<(), Failed> {
    let options = CudaOptions { kv_tokens: Some(4096), step_tokens: 512, ..task.options.clone() };
    let mut executor = MODELS[0].open(&options)?;
    let found = format!("{:?}", rows(&mut executor)?);
    if let Ok(before) = std::env::var(BEFORE) {
        return compare("a new program", &before, &found);
    }
    read_illegal_address(&executor)?;
    match rows(&mut executor) {
        Err(ExecutorError::Lost(why)) => println!("RES loss is noticed: {why}"),
        Err(error) => return Err(Failed::Wrong(format!("the loss was taken for something else: {error}"))),
        Ok(_) => return Err(Failed::Wrong("the loss was not noticed".into())),
    }
    match executor.restart() {
        Ok(()) => compare("a restart", &found, &format!("{:?}", rows(&mut executor)?)),
        Err(error) if needs_new_process() => {
            println!("RES loss: the driver serves this process no more: {error}");
            let mut words = std::env::args_os();
            let program = words.next().unwrap_or_default();
            let error = Command::new(program).args(["loss"]).env(BEFORE, found).exec();
            Err(Failed::Wrong(format!("no new program: {error}")))
        }
        Err(error) => Err(error.into()),
    }
}

fn compare(after: &str, before: &str, found: &str) -> Result<(), Failed> {
    println!("RES loss is over after {after}: same rows {}", before == found);
    if before == found { Ok(()) } else { Err(Failed::Wrong("other bits than before".into())) }
}

fn rows(executor: &mut CudaExecutor) -> Result<Vec<RowResult>, ExecutorError> {
    let (mut batch, mut output) = (Batch::default(), StepOutput::default());
    batch.push_chunk(&[1, 2, 3], 0, &[BlockId(0)]);
    batch.sample_last(&SamplingParams { logprobs: Some(4), ..SamplingParams::greedy() }, History::default());
    executor.execute(&batch, &mut output)?;
    Ok(output.rows)
}

fn read_illegal_address(executor: &CudaExecutor) -> Result<(), CudaError> {
    let Some(program) = executor.program() else { return Ok(()) };
    let nowhere = Randomise { values: Address(16), count: 256, seed: 0, amount: 1.0 };
    let shape = LaunchShape { grid: [1, 1, 1], threads: 256, shared_bytes: 0 };
    Ok(program.stream.launch(&program.kernels.products.randomise, shape, &nowhere)?)
}
