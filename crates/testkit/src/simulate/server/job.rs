//! What a server can do, what it is asked and what it says.

use std::sync::Arc;

use ropeway_engine::cost::Work;

use super::super::hardware::Hardware;

/// What a server can do.
#[derive(Clone, Copy, Debug)]
pub struct ServerModel {
    /// Seconds per step, token, row, pair and position read.
    pub cost: [f64; 5],
    /// Most tokens of a step.
    pub step_tokens: usize,
    /// Most streams of a step.
    pub rows: usize,
    /// Tokens of a block of the prefix cache.
    pub block_tokens: usize,
    /// Blocks that fit into its memory.
    pub blocks: usize,
}

impl ServerModel {
    /// A machine with blocks of so many tokens.
    pub fn new(hardware: &Hardware, block_tokens: usize) -> Self {
        let blocks = hardware.kv_memory / hardware.bytes(block_tokens);
        Self {
            cost: hardware.cost,
            step_tokens: hardware.step_tokens,
            rows: hardware.rows,
            block_tokens,
            blocks: blocks as usize,
        }
    }

    /// How long a step with so much work takes.
    pub(super) fn seconds(&self, work: Work) -> f64 {
        let [step, token, row, pair, read] = self.cost;
        step + token * work.tokens as f64
            + row * work.rows as f64
            + pair * work.pairs as f64
            + read * work.reads as f64
    }

    /// Blocks that a request takes when its answer is complete.
    pub(super) fn blocks_of(&self, job: &Job) -> usize {
        (job.prompt + job.answer).div_ceil(self.block_tokens)
    }
}

/// A request.
#[derive(Clone, Debug)]
pub struct Job {
    /// What its events are called by.
    pub id: u64,
    /// Tokens of the prompt; at least one.
    pub prompt: usize,
    /// Tokens of the answer; at least one.
    pub answer: usize,
    /// Names of the whole blocks of prompt and answer together, as far as they are known. Each name covers everything before it.
    pub blocks: Arc<[u64]>,
}

/// Something that a server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The first token of an answer.
    FirstToken {
        /// Whose.
        id: u64,
        /// Tokens of the prompt that were cached.
        cached: usize,
    },
    /// The last token of an answer.
    Done {
        /// Whose.
        id: u64,
    },
}

/// A request that is not done, and the tokens it has got here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Which one.
    pub id: u64,
    /// Tokens of its answer so far.
    pub tokens: usize,
}
