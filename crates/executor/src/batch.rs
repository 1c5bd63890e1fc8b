//! One step's work, flattened.
//!
//! ```text
//! tokens   | a0 a1 a2 a3 | b7 | c0 c1 |      three chunks: a prompt, a decode, a prompt
//! chunks   | start 0     | 7  | 0     |      position of each chunk's first token
//! copies   | 7 -> 9 |                        blocks copied first, so that 9 may be written to
//! blocks   | 4 9         | 2  | 5     |      each chunk's block table, from position 0 on
//! rows     |          ^    ^         ^|      which tokens' logits are wanted, and what for
//! feeds    |               |          |      tokens that the step in flight is choosing: b7 is what its row 2 gives
//! ```

use std::ops::Range;
use std::time::Duration;

use crate::{Class, ExecutorError, GuideId, Limits, SamplingParams};

/// A block of KV memory, by its index in the executor's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// Consecutive tokens of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its tokens, as a range of [`Batch::tokens`].
    pub tokens: Range<usize>,
    /// Position of its first token: how many of the sequence's tokens are computed already.
    pub start: usize,
    /// Its block table, as a range of [`Batch::blocks`]; covers positions `0..start + tokens.len()`.
    pub blocks: Range<usize>,
}

/// What is wanted of a row of logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Choose the next token.
    Sample,
    /// Report the log-probability of this token.
    Score(u32),
}

/// One token whose logits are wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its index in [`Batch::tokens`].
    pub token: usize,
    /// What for.
    pub ask: Ask,
    /// How to choose.
    pub params: SamplingParams,
    /// Tokens before the wanted one that penalties look at, as a range of [`Batch::history`]; empty when
    /// no penalty is set. A token that is [fed](Feed) into the row's chunk follows them.
    pub history: Range<usize>,
    /// How many of the history's tokens, the first ones, are the prompt's.
    pub prompt: usize,
    /// Position of the wanted token in its sequence: with the seed, all that the random choice depends on.
    pub position: u64,
    /// Who says which tokens may be chosen; `None` allows all.
    pub guide: Option<GuideId>,
}

/// A token that is not known yet: the one that a row of the step in flight chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feed {
    /// Its index in [`Batch::tokens`], where any token stands in for it.
    pub token: usize,
    /// The row of the step launched before this one.
    pub row: usize,
}

/// What penalties look at: the tokens of a sequence before the wanted one.
#[derive(Clone, Copy, Debug, Default)]
pub struct History<'a> {
    /// The prompt.
    pub prompt: &'a [u32],
    /// The answer so far, as far as it is known.
    pub answer: &'a [u32],
    /// Tokens after these that stand in the row's own chunk: drafted ones.
    pub drafted: &'a [u32],
}

/// All chunks of one step. Kept and refilled, so that a step allocates nothing once warm.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Token ids of all chunks, one after another.
    pub tokens: Vec<u32>,
    /// The chunks, in the order of their tokens.
    pub chunks: Vec<Chunk>,
    /// Block tables of all chunks, one after another.
    pub blocks: Vec<BlockId>,
    /// Rows whose logits are wanted, by ascending token index.
    pub rows: Vec<Row>,
    /// Histories of all rows, one after another.
    pub history: Vec<u32>,
    /// Blocks whose content is copied before anything is computed, in this order: `(from, to)`.
    pub copies: Vec<(BlockId, BlockId)>,
    /// Tokens that the step in flight is choosing, by ascending index.
    pub feeds: Vec<Feed>,
    /// The most urgent class that has a part in the step.
    pub class: Class,
    /// How long the step should take.
    pub expected: Duration,
}

impl Batch {
    /// An empty batch with room for what a step can hold while no block is in two tables; only histories and widely
    /// shared prompts make it grow.
    pub fn with_room(limits: &Limits) -> Self {
        Self {
            tokens: Vec::with_capacity(limits.step_tokens),
            chunks: Vec::with_capacity(limits.step_rows),
            blocks: Vec::with_capacity(limits.blocks),
            rows: Vec::with_capacity(limits.step_rows),
            ..Self::default()
        }
    }

    /// Empties the batch, keeping its memory.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.chunks.clear();
        self.blocks.clear();
        self.rows.clear();
        self.history.clear();
        self.copies.clear();
        self.feeds.clear();
        (self.class, self.expected) = (Class::default(), Duration::ZERO);
    }

    /// Adds a chunk that starts at position `start`, and returns its index.
    pub fn push_chunk(&mut self, tokens: &[u32], start: usize, table: &[BlockId]) -> usize {
        let (first, block) = (self.tokens.len(), self.blocks.len());
        self.tokens.extend_from_slice(tokens);
        self.blocks.extend_from_slice(table);
        let chunk = Chunk { tokens: first..self.tokens.len(), start, blocks: block..self.blocks.len() };
        self.chunks.push(chunk);
        self.chunks.len() - 1
    }

    /// Adds more tokens to the newest chunk.
    pub fn extend_last(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.tokens.end = self.tokens.len();
        }
    }

    /// Asks for the token after the last one of the newest chunk.
    pub fn sample_last(&mut self, params: &SamplingParams, history: History<'_>) {
        let Some(chunk) = self.chunks.last() else { return };
        self.sample(chunk.tokens.len() - 1, params, history);
    }

    /// Asks for the token after token `index` of the newest chunk.
    pub fn sample(&mut self, index: usize, params: &SamplingParams, history: History<'_>) {
        let Some(chunk) = self.chunks.last() else { return };
        let position = (chunk.start + index + 1) as u64;
        let token = chunk.tokens.start + index;
        let first = self.history.len();
        for part in [history.prompt, history.answer, history.drafted] {
            self.history.extend_from_slice(part);
        }
        let (prompt, history) = (history.prompt.len(), first..self.history.len());
        let (ask, params) = (Ask::Sample, params.clone());
        self.rows.push(Row { token, ask, params, history, prompt, position, guide: None });
    }

    /// Has the last token of the newest chunk be what row `row` of the step in flight chooses.
    pub fn feed_last(&mut self, row: usize) {
        let token = self.tokens.len() - 1;
        self.feeds.push(Feed { token, row });
    }

    /// Has the newest row choose among what `guide` allows.
    pub fn guide_last(&mut self, guide: GuideId) {
        if let Some(row) = self.rows.last_mut() {
            row.guide = Some(guide);
        }
    }

    /// Asks what the model thought of `target` after the token at `token` (an index into the batch).
    pub fn score(&mut self, token: usize, target: u32, params: &SamplingParams) {
        let (ask, params) = (Ask::Score(target), params.clone());
        self.rows.push(Row { token, ask, params, history: 0..0, prompt: 0, position: 0, guide: None });
    }

    /// Checks every index once, so that executors may trust them.
    pub fn check(&self, limits: &Limits) -> Result<(), ExecutorError> {
        let bad = |what: String| Err(ExecutorError::BadBatch(what));
        if self.tokens.len() > limits.step_tokens {
            return bad(format!("{} tokens in one step, at most {}", self.tokens.len(), limits.step_tokens));
        }
        if self.rows.len() > limits.step_rows {
            return bad(format!("{} rows in one step, at most {}", self.rows.len(), limits.step_rows));
        }
        if let Some(token) = self.tokens.iter().find(|&&token| token as usize >= limits.vocab) {
            return bad(format!("token {token} is outside the vocabulary of {}", limits.vocab));
        }
        let outside = |block: &BlockId| block.0 as usize >= limits.blocks;
        if self.copies.iter().any(|(from, to)| outside(from) || outside(to)) {
            return bad("a copied block outside the pool".into());
        }
        let mut next = 0;
        for chunk in &self.chunks {
            self.check_chunk(chunk, next, limits)?;
            next = chunk.tokens.end;
        }
        if next != self.tokens.len() {
            return bad("tokens without a chunk".into());
        }
        self.check_feeds(limits)?;
        if !self.rows.is_sorted_by_key(|row| row.token) {
            return bad("rows whose tokens do not ascend".into());
        }
        self.rows.iter().try_for_each(|row| self.check_row(row, limits))
    }

    fn check_feeds(&self, limits: &Limits) -> Result<(), ExecutorError> {
        let ends = |feed: &Feed| self.chunks.iter().any(|chunk| chunk.tokens.end == feed.token + 1);
        if self.feeds.is_empty() || (limits.ahead > 0 && self.feeds.iter().all(ends)) {
            return Ok(());
        }
        Err(ExecutorError::BadBatch(
            "a token is fed from a step that can't be in flight, or into a chunk".into(),
        ))
    }

    fn check_chunk(&self, chunk: &Chunk, next: usize, limits: &Limits) -> Result<(), ExecutorError> {
        let bad = |what: &str| Err(ExecutorError::BadBatch(format!("{what}: {chunk:?}")));
        if chunk.tokens.is_empty() || chunk.tokens.start != next || chunk.tokens.end > self.tokens.len() {
            return bad("chunks must cover the tokens in order");
        }
        let end = chunk.start + chunk.tokens.len();
        if end > limits.context {
            return bad("a chunk reaches beyond the context");
        }
        let Some(table) = self.blocks.get(chunk.blocks.clone()) else { return bad("no such block range") };
        if table.len() * limits.block_tokens < end {
            return bad("the block table is too short");
        }
        if table.iter().any(|block| block.0 as usize >= limits.blocks) {
            return bad("a block outside the pool");
        }
        Ok(())
    }

    fn check_row(&self, row: &Row, limits: &Limits) -> Result<(), ExecutorError> {
        let scored = match row.ask {
            Ask::Sample => 0,
            Ask::Score(token) => token as usize,
        };
        let history = self.history.get(row.history.clone());
        let known = row.token < self.tokens.len() && history.is_some_and(|all| row.prompt <= all.len());
        if known && scored < limits.vocab {
            return Ok(());
        }
        Err(ExecutorError::BadBatch(format!("a row points outside the batch or vocabulary: {row:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        block_tokens: 4,
        blocks: 8,
        context: 16,
        step_tokens: 8,
        step_rows: 2,
        vocab: 100,
        ..Limits::EXAMPLE
    };

    fn two_chunks() -> Batch {
        let mut batch = Batch::default();
        batch.push_chunk(&[1, 2, 3], 0, &[BlockId(0)]);
        batch.push_chunk(&[9], 5, &[BlockId(3), BlockId(1)]);
        batch.sample_last(&SamplingParams::greedy(), History::default());
        batch
    }

    #[test]
    fn a_well_formed_batch_passes_and_knows_the_sampled_position() {
        let batch = two_chunks();
        assert_eq!(batch.check(&LIMITS), Ok(()));
        assert_eq!((batch.rows[0].token, batch.rows[0].position), (3, 6));
    }

    #[test]
    fn every_broken_limit_is_named() {
        type Breakage = (&'static str, fn(&mut Batch));
        let cases: [Breakage; 10] = [
            ("in flight", |b| b.feed_last(0)),
            ("copied block", |b| b.copies.push((BlockId(0), BlockId(8)))),
            ("outside the vocabulary", |b| b.tokens[0] = 100),
            ("too short", |b| b.chunks[1].start = 8),
            ("beyond the context", |b| b.chunks[1].start = 16),
            ("outside the pool", |b| b.blocks[0] = BlockId(8)),
            ("in order", |b| b.chunks[1].tokens = 0..1),
            ("without a chunk", |b| b.tokens.push(1)),
            ("points outside", |b| b.rows[0].token = 4),
            ("do not ascend", |b| b.score(0, 0, &SamplingParams::greedy())),
        ];
        for (text, breakage) in cases {
            let mut batch = two_chunks();
            breakage(&mut batch);
            let error = batch.check(&LIMITS).expect_err(text).to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
