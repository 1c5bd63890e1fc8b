//! A block as an executor computes it, by which executors are told apart.

use crate::{Batch, BlockId, Executor, ExecutorError, StepOutput};

/// The bytes of the block that an executor computes for some tokens. Two that give the same ones compute alike, as far as one block can tell.
/// Its first block is overwritten.
pub fn sample_block(executor: &mut dyn Executor) -> Result<Vec<u8>, ExecutorError> {
    let limits = executor.limits();
    let tokens = limits.block_tokens.min(limits.context).min(limits.step_tokens);
    let tokens: Vec<u32> = (0..tokens).map(|index| (index * 7919 % limits.vocab) as u32).collect();
    let (mut batch, block) = (Batch::with_room(&limits), BlockId(0));
    batch.push_chunk(&tokens, 0, &[block]);
    executor.execute(&batch, &mut StepOutput::default())?;
    let mut bytes = vec![0; limits.block_bytes];
    executor.export(block, &mut bytes)?;
    Ok(bytes)
}
