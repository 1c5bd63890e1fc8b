//! Blocks of keys and values to the host and back: the same bytes, and how fast.

use std::time::Instant;

use ropeway_cuda::CudaOptions;
use ropeway_executor::{BlockId, Executor, sample_block};

use crate::{Failed, Task, models};

/// Blocks that are moved.
const BLOCKS: u32 = 64;

pub fn check(task: &Task) -> Result<(), Failed> {
    for model in models::wanted(task) {
        let options = CudaOptions { kv_tokens: Some(4096), step_tokens: 512, ..task.options.clone() };
        let mut executor = model.open(&options)?;
        let bytes = sample_block(&mut executor)?;
        let mut back = vec![0; bytes.len()];
        let start = Instant::now();
        for block in 1..=BLOCKS {
            executor.import(BlockId(block), &bytes)?;
        }
        // At once after its import.
        executor.export(BlockId(BLOCKS), &mut back)?;
        let fresh = back == bytes;
        let imports = start.elapsed();
        let start = Instant::now();
        let mut same = 0;
        for block in 1..=BLOCKS {
            executor.export(BlockId(block), &mut back)?;
            same += usize::from(back == bytes);
        }
        let each = |time: std::time::Duration| time.as_secs_f64() * 1e6 / f64::from(BLOCKS);
        println!(
            "RES {} blocks of {:.2} MB: import {:.0} us, export {:.0} us each, {same} of {BLOCKS} the same",
            model.name,
            bytes.len() as f64 / 1e6,
            each(imports),
            each(start.elapsed())
        );
        if !fresh || same != BLOCKS as usize {
            return Err(Failed::Wrong(format!("{}: a block came back changed", model.name)));
        }
    }
    Ok(())
}
