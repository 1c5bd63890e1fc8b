//! A lost device: a kernel reads an illegal address; the model has to notice, to be loaded again in the same process, and to compute the
//! same as before. One beside it, with a context of its own, should not notice anything.

use ropeway_cuda::driver::{Address, Shape};
use ropeway_cuda::kernels::Randomise;
use ropeway_cuda::{CudaError, CudaExecutor, CudaOptions};
use ropeway_executor::{
    Batch, BlockId, Executor, ExecutorError, History, RowResult, SamplingParams, StepOutput,
};

use crate::models::MODELS;
use crate::{Failed, Task};

pub fn check(task: &Task) -> Result<(), Failed> {
    let options = CudaOptions { kv_tokens: Some(4096), step_tokens: 512, ..task.options.clone() };
    let (mut lost, mut other) = (MODELS[0].open(&options)?, MODELS[0].open(&options)?);
    let before = rows(&mut lost)?;
    read_illegal_address(&lost)?;
    match rows(&mut lost) {
        Err(ExecutorError::Lost(why)) => println!("RES loss is noticed: {why}"),
        Err(error) => return Err(Failed::Wrong(format!("the loss was taken for something else: {error}"))),
        Ok(_) => return Err(Failed::Wrong("the loss was not noticed".into())),
    }
    match rows(&mut other) {
        Ok(after) => println!("RES loss beside another model: it goes on, same rows {}", after == before),
        Err(error) => println!("RES loss beside another model: it is lost as well: {error}"),
    }
    match lost.restart() {
        Ok(()) => println!("RES loss: restarted beside the other context"),
        Err(error) => println!("RES loss: not restarted beside the other context: {error}"),
    }
    drop(other);
    lost.restart()?;
    let after = rows(&mut lost)?;
    println!("RES loss is over after a restart: same rows {}", after == before);
    if after == before { Ok(()) } else { Err(Failed::Wrong("another device computes other bits".into())) }
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
    let shape = Shape { grid: [1, 1, 1], threads: 256, shared_bytes: 0 };
    Ok(program.stream.launch(&program.kernels.products.randomise, shape, &nowhere)?)
}
