//! The seam between the engine and the hardware: a flat [`Batch`] in, a [`StepOutput`] out.
//!
//! Only plain arrays cross it, so that a CPU, a GPU and a mock can stand on the other side. It relies on
//! nothing but the caller's word that block tables are valid for the executor's [`Limits`], and checks even
//! that; it must never know about requests, text, scheduling or time.
//!
//! ```text
//! launch(n)      launch(n+1)    collect -> n    launch(n+2)    collect -> n+1       ahead = 1
//! launch(n)      collect -> n   launch(n+1)     collect -> n+1                      ahead = 0
//! ```
//! Steps run in the order of their launches, each after the one before it, and are collected in that order.
//!
//! # Layout
//! - [`batch`]: what is computed in one step.
//! - [`class`]: how urgent it is.
//! - [`limits`]: what an executor can hold, and what it is like.
//! - [`sample_block`]: what tells executors apart.
//! - [`sampling`]: how a row of logits becomes a token; [`guides`]: which tokens it may become.
//! - [`Executor`], [`StepOutput`], [`ExecutorError`]: the trait and what comes back.

use std::time::Duration;

pub mod batch;
pub mod class;
pub mod guides;
pub mod limits;
mod sample;
pub mod sampling;

pub use batch::{Ask, Batch, BlockId, Chunk, Feed, History, Row};
pub use class::Class;
pub use guides::{GuideId, Guides, Unguided};
pub use limits::{CostGuess, Limits, StepSizes};
pub use sample::sample_block;
pub use sampling::{Biases, SamplingParams, Seed};

/// One token the executor chose (or was told to score), and what it was worth.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    /// The chosen token, or the scored one.
    pub token: u32,
    /// Its log-probability under the model's own distribution, before any sampling filter.
    pub logprob: f32,
    /// The most likely tokens and their log-probabilities, best first; as many as were asked for.
    pub top: Vec<(u32, f32)>,
}

/// What came of one row.
pub type RowResult = Result<Sampled, RowError>;

/// A failure confined to one row: the step and its other rows stand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The forward pass gave NaN, or no finite logit at all.
    #[error("the model produced no finite logits for this row; its weights or its input are damaged")]
    NotFinite,
    /// Nothing is left to choose from once biases and masks are applied.
    #[error("every token is excluded by the logit bias or mask; allow at least one token")]
    NothingAllowed,
    /// The row's grammar can't go on.
    #[error("the grammar of this request can't be followed any further: {0}")]
    Grammar(String),
    /// A bug: choosing the token panicked. What it was working on is thrown away; other rows stand.
    #[error("choosing a token failed on a bug of Ropeway; please report the message in its log")]
    Panicked,
}

/// Results of one step.
#[derive(Clone, Debug, Default)]
pub struct StepOutput {
    /// One entry per row of the batch, in the order of [`Batch::rows`].
    pub rows: Vec<RowResult>,
    /// Time that the step waited for hardware that it shares with other models. Not part of what it cost.
    pub waited: Duration,
    /// Time that the device took, from the step's first operation to its last.
    pub device: Duration,
}

impl StepOutput {
    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        (self.waited, self.device) = (Duration::ZERO, Duration::ZERO);
    }
}

/// A step that could not run at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecutorError {
    /// The batch breaks the executor's limits: a bug in the planner, never a client's fault.
    #[error("the batch breaks a limit of the executor: {0}")]
    BadBatch(String),
    /// This step failed. Blocks that it did not write to still hold what they held.
    #[error("the step failed: {0}")]
    Step(String),
    /// The device is gone, and with it the content of every block. It computes nothing until it is restarted.
    #[error("the device was lost: {0}")]
    Lost(String),
}

/// Runs batches on some hardware.
pub trait Executor: Send {
    /// What it can hold.
    fn limits(&self) -> Limits;

    /// Starts a step: computes every token of the batch, writes its keys and values, and chooses a token for each
    /// sampled row. Rows with a guide choose among what `guides` allow them. May return before the step is done.
    ///
    /// At most [`Limits::ahead`] steps may be in flight when this is called. A step that failed to launch has not
    /// begun.
    fn launch(&mut self, batch: &Batch, guides: &dyn Guides) -> Result<(), ExecutorError>;

    /// Waits for the oldest step in flight, and fills `output` with one result per row of its batch. `guides` are
    /// those of its launch. If it failed, the steps launched after it have failed as well, and are not in flight any
    /// more.
    fn collect(&mut self, guides: &dyn Guides, output: &mut StepOutput) -> Result<(), ExecutorError>;

    /// Writes what a block holds into `bytes`, which has room for [`Limits::block_bytes`]. Steps that were launched before
    /// are over for this block: whoever asks knows that none of them writes to it.
    fn export(&mut self, block: BlockId, bytes: &mut [u8]) -> Result<(), ExecutorError> {
        let _ = (block, bytes);
        Err(ExecutorError::BadBatch("this executor's blocks stay where they are".into()))
    }

    /// Makes a block hold what an [exported](Executor::export) one held, bit for bit.
    fn import(&mut self, block: BlockId, bytes: &[u8]) -> Result<(), ExecutorError> {
        let _ = (block, bytes);
        Err(ExecutorError::BadBatch("this executor's blocks stay where they are".into()))
    }

    /// Makes a lost device usable again, with empty blocks.
    fn restart(&mut self) -> Result<(), ExecutorError> {
        Err(ExecutorError::Lost("it can't be restarted".into()))
    }

    /// Launches and collects one step, with nothing else in flight and every row free.
    fn execute(&mut self, batch: &Batch, output: &mut StepOutput) -> Result<(), ExecutorError> {
        self.launch(batch, &Unguided)?;
        self.collect(&Unguided, output)
    }
}
