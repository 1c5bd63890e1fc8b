//! A decoder that stands in for an encoder: the last token's vector, which has seen the whole text.
//!
//! A pass is one step of the executor without its head; nothing is kept between passes.

use ropeway_executor::{Batch, BlockId, Executor, ExecutorError, SamplingParams};
use ropeway_model::encoder::device::{Asked, DeviceEncoder, DeviceFacts, DeviceFailure, Encoded};
use ropeway_model::encoder::{Pooling, Texts};
use ropeway_weights::Checkpoint;

use super::{Losses, given_up};
use crate::error::CudaError;
use crate::executor::{CudaExecutor, CudaOptions};
use crate::kernels::BLOCK;
use crate::shape::RowClass;

/// A decoder on a GPU, as an embedder.
pub struct CudaTextDecoder {
    executor: CudaExecutor,
    tokens: usize,
    is_lost: bool,
    losses: Losses,
}

impl CudaTextDecoder {
    /// Loads an opened checkpoint, for passes of so many tokens.
    pub fn load(
        checkpoint: &Checkpoint,
        tokens: usize,
        options: CudaOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CudaError> {
        let tokens = RowClass::of(tokens.next_multiple_of(BLOCK)).measured().rows();
        let options = CudaOptions {
            step_tokens: tokens,
            step_rows: tokens / BLOCK,
            kv_tokens: Some(tokens),
            ..options
        };
        let executor = CudaExecutor::load(checkpoint, options, progress)?;
        Ok(Self { executor, tokens, is_lost: false, losses: Losses::default() })
    }

    /// One line about where it runs.
    pub fn describe(&self) -> String {
        self.executor.describe()
    }

    fn run(&mut self, texts: &Texts<'_>) -> Result<Vec<Vec<f32>>, ExecutorError> {
        if self.is_lost {
            self.executor.restart()?;
            self.is_lost = false;
        }
        self.executor.hidden_states(&batch(texts))
    }
}

/// Every text in blocks of its own; a row for the last token of each.
fn batch(texts: &Texts<'_>) -> Batch {
    let mut batch = Batch::default();
    let mut next = 0;
    for rows in texts.rows {
        let blocks = rows.len().div_ceil(BLOCK) as u32;
        let table: Vec<BlockId> = (next..next + blocks).map(BlockId).collect();
        next += blocks;
        batch.push_chunk(&texts.tokens[rows.clone()], 0, &table);
        batch.score(batch.tokens.len() - 1, 0, &SamplingParams::greedy());
    }
    batch
}

impl DeviceEncoder for CudaTextDecoder {
    fn facts(&self) -> DeviceFacts {
        let spec = self.executor.spec();
        DeviceFacts {
            family: spec.family,
            dimensions: spec.hidden,
            max_tokens: spec.context,
            vocab: spec.vocab,
            can_score: false,
            pooling: Some(Pooling::Last),
            pass_tokens: self.tokens,
        }
    }

    fn room(&self, tokens: usize) -> usize {
        tokens.next_multiple_of(BLOCK)
    }

    fn encode(&mut self, texts: &Texts<'_>, asked: Asked) -> Result<Encoded, DeviceFailure> {
        if self.losses.are_too_many() {
            return Err(given_up());
        }
        if asked.vectors.is_none() {
            return Ok(Encoded::default());
        }
        match self.run(texts) {
            Ok(vectors) => {
                self.losses.pass();
                Ok(Encoded { vectors, scores: Vec::new() })
            }
            Err(error) => {
                if matches!(error, ExecutorError::Lost(_)) {
                    self.is_lost = true;
                    self.losses.count();
                }
                Err(DeviceFailure(error.to_string()))
            }
        }
    }
}
