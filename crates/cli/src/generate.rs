//! One conversation at a time on an executor: known tokens in, sampled tokens out.
//!
//! ```text
//! tokens    | system | question | answer so far |       what is known
//! computed  ---------------------------------->         of these the KV exists
//! next turn | system | question | answer | question 2 |
//! reused    --------------------------->                the longest common prefix
//! ```
//!
//! [`Generator::answer`] takes the whole prompt of a turn, keeps the KV of what it shares with the tokens computed
//! before, and gives an [`Answer`] that [advances](Answer::advance) one step at a time. There is no prefill phase: a
//! step computes the next chunk of known tokens, and samples when that chunk was the last.
//!
//! It relies on the executor's limits only, and must never know about text, terminals or time.

use std::sync::atomic::{AtomicBool, Ordering};

use ropeway_executor::{
    Batch, BlockId, Executor, ExecutorError, Limits, RowError, SamplingParams, StepOutput,
};

/// A sequence on an executor that it owns whole.
pub struct Generator<E> {
    executor: E,
    limits: Limits,
    /// Every block of the executor, in order.
    table: Vec<BlockId>,
    /// What is known of the sequence.
    tokens: Vec<u32>,
    /// How many of the tokens have their KV in the table's blocks.
    computed: usize,
    batch: Batch,
    output: StepOutput,
}

/// How an answer is chosen, and what ends it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// How tokens are chosen.
    pub params: &'a SamplingParams,
    /// Tokens that end the answer.
    pub ends: &'a [u32],
    /// Most tokens of the answer; `None` leaves it to the model and the context.
    pub max_tokens: Option<usize>,
    /// Ends the answer before its next step once set.
    pub cancel: &'a AtomicBool,
}

/// What a step brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A part of the prompt is computed.
    Computed,
    /// The next token of the answer.
    Token(u32),
    /// The answer is over; advancing further gives the same again.
    End(End),
}

/// Why an answer is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model ended it.
    Model,
    /// It has as many tokens as were asked for.
    MaxTokens,
    /// The context is full.
    Context,
    /// Someone cancelled it.
    Cancelled,
}

/// An answer that can't begin or go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// There is nothing to continue.
    #[error("the prompt is empty; give it some text")]
    Empty,
    /// The prompt leaves no room for an answer.
    #[error("the prompt has {tokens} tokens, but only {room} with the answer fit into the context")]
    TooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens that fit.
        room: usize,
    },
    /// The step failed.
    #[error(transparent)]
    Step(#[from] ExecutorError),
    /// No token could be chosen.
    #[error(transparent)]
    Row(#[from] RowError),
}

impl<E: Executor> Generator<E> {
    /// A generator with nothing computed yet.
    pub fn new(executor: E) -> Self {
        let limits = executor.limits();
        let table = (0..limits.blocks as u32).map(BlockId).collect();
        let (batch, output) = (Batch::default(), StepOutput::default());
        Self { executor, limits, table, tokens: Vec::new(), computed: 0, batch, output }
    }

    /// Tokens that prompt and answer may have together.
    pub fn room(&self) -> usize {
        self.limits.context.min(self.limits.blocks * self.limits.block_tokens)
    }

    /// Begins to answer `prompt`, reusing what it has in common with the tokens computed before.
    pub fn answer<'g>(
        &'g mut self,
        prompt: &[u32],
        request: Request<'g>,
    ) -> Result<Answer<'g, E>, GenerateError> {
        let Some(last) = prompt.len().checked_sub(1) else { return Err(GenerateError::Empty) };
        if prompt.len() >= self.room() {
            return Err(GenerateError::TooLong { tokens: prompt.len(), room: self.room() });
        }
        // The last token is always computed anew: its logits choose the first token of the answer.
        let reused = common_prefix(&self.tokens[..self.computed], prompt).min(last);
        self.computed = reused;
        self.tokens.clear();
        self.tokens.extend_from_slice(prompt);
        Ok(Answer { generator: self, request, prompt_len: prompt.len(), reused, end: None })
    }

    /// Computes the next chunk of known tokens; gives the token after them when they were the last.
    fn step(&mut self, params: &SamplingParams) -> Result<Option<u32>, GenerateError> {
        let end = self.tokens.len().min(self.computed + self.limits.step_tokens);
        self.fill(end, params);
        if let Err(error) = self.executor.execute(&self.batch, &mut self.output) {
            // A device that failed may have lost its blocks.
            self.computed = 0;
            return Err(error.into());
        }
        self.computed = end;
        match self.output.rows.pop() {
            Some(row) => Ok(Some(row?.token)),
            None => Ok(None),
        }
    }

    /// The batch of the tokens up to `end`, sampling if nothing is known beyond.
    fn fill(&mut self, end: usize, params: &SamplingParams) {
        let blocks = end.div_ceil(self.limits.block_tokens);
        self.batch.clear();
        self.batch.push_chunk(&self.tokens[self.computed..end], self.computed, &self.table[..blocks]);
        if end == self.tokens.len() {
            let history: &[u32] = if params.uses_history() { &self.tokens } else { &[] };
            self.batch.sample_last(params, history);
        }
    }
}

fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// An answer in the making.
pub struct Answer<'g, E> {
    generator: &'g mut Generator<E>,
    request: Request<'g>,
    prompt_len: usize,
    reused: usize,
    end: Option<End>,
}

impl<E: Executor> Answer<'_, E> {
    /// Prompt tokens whose KV was there already.
    pub fn reused(&self) -> usize {
        self.reused
    }

    /// Prompt tokens that are yet to be computed.
    pub fn pending(&self) -> usize {
        self.prompt_len.saturating_sub(self.generator.computed)
    }

    /// Runs one step.
    pub fn advance(&mut self) -> Result<Event, GenerateError> {
        if let Some(end) = self.end.or_else(|| self.end_before_step()) {
            return Ok(self.ended(end));
        }
        match self.generator.step(self.request.params)? {
            None => Ok(Event::Computed),
            Some(token) if self.request.ends.contains(&token) => Ok(self.ended(End::Model)),
            Some(token) => {
                self.generator.tokens.push(token);
                Ok(Event::Token(token))
            }
        }
    }

    fn end_before_step(&self) -> Option<End> {
        let known = self.generator.tokens.len();
        if self.request.cancel.load(Ordering::Relaxed) {
            return Some(End::Cancelled);
        }
        if self.request.max_tokens.is_some_and(|most| known - self.prompt_len >= most) {
            return Some(End::MaxTokens);
        }
        (known >= self.generator.room()).then_some(End::Context)
    }

    fn ended(&mut self, end: End) -> Event {
        self.end = Some(end);
        Event::End(end)
    }
}

#[cfg(test)]
mod tests;
