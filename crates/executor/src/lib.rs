//! The seam between the engine and the hardware: a flat [`Batch`] in, a [`StepOutput`] out.
//!
//! Only plain arrays cross it, so that a CPU, a GPU and a mock can stand on the other side. It relies on
//! nothing but the caller's word that block tables are valid for the executor's [`Limits`], and checks even
//! that; it must never know about requests, text, scheduling or time.
//!
//! # Layout
//! - [`batch`]: what is computed in one step.
//! - [`sampling`]: how a row of logits becomes a token; [`guides`]: which tokens it may become.
//! - [`Executor`], [`StepOutput`], [`ExecutorError`]: the trait and what comes back.

pub mod batch;
pub mod guides;
pub mod sampling;

pub use batch::{Ask, Batch, BlockId, Chunk, Row};
pub use guides::{GuideId, Guides, Unguided};
pub use sampling::{SamplingParams, Seed};

/// What an executor can hold; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tokens of one KV block.
    pub block_tokens: usize,
    /// KV blocks in the pool.
    pub blocks: usize,
    /// Longest sequence, in tokens, that positions and rope tables allow.
    pub context: usize,
    /// Most tokens in one step.
    pub step_tokens: usize,
    /// Most rows that ask for logits in one step.
    pub step_rows: usize,
    /// Token ids are below this.
    pub vocab: usize,
}

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

/// Results of one step, in the order of [`Batch::rows`].
#[derive(Clone, Debug, Default)]
pub struct StepOutput {
    /// One entry per row of the batch.
    pub rows: Vec<RowResult>,
}

/// A step that could not run at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecutorError {
    /// The batch breaks the executor's limits: a bug in the planner, never a client's fault.
    #[error("the batch breaks a limit of the executor: {0}")]
    BadBatch(String),
    /// The device failed; sequences whose blocks it held are lost.
    #[error("the device failed: {0}")]
    Device(String),
}

/// Runs batches on some hardware.
pub trait Executor: Send {
    /// What it can hold.
    fn limits(&self) -> Limits;

    /// Computes every token of the batch, writes its keys and values, and fills `output` with one result
    /// per asked row. Rows with a guide choose among what `guides` allow them.
    fn execute_guided(
        &mut self,
        batch: &Batch,
        guides: &dyn Guides,
        output: &mut StepOutput,
    ) -> Result<(), ExecutorError>;

    /// The same for batches in which every row is free.
    fn execute(&mut self, batch: &Batch, output: &mut StepOutput) -> Result<(), ExecutorError> {
        self.execute_guided(batch, &Unguided, output)
    }
}
