//! A smaller model with the same tokenizer that drafts for the engine's own.
//!
//! ```text
//! read      the tokens of all sequences, prompts in chunks, as far as the engine's model has computed them
//! pass 1    | tokens that were chosen since, of every sequence |  -> d1 of each
//! pass 2    | d1 of every sequence |                              -> d2 of each
//! ...       one forward pass for all sequences per drafted position
//! ```
//! It chooses with the parameters of the request and with the same random numbers, which depend on the seed and the
//! position only. Where the two models see the same probabilities they therefore choose the same tokens, at any temperature.
//!
//! It has blocks of its own, and a prefix cache that goes by the names of the engine's blocks. Drafts that were wrong are
//! forgotten by lowering `computed`; blocks get their name once all their tokens were said. Whatever fails here costs
//! drafts, never an answer.

use std::sync::Arc;
use std::time::Duration;

use ropeway_executor::{
    Batch, Chunk, Class, Executor, ExecutorError, History, Limits, SamplingParams, StepOutput,
};

use super::reader::Reader;
use super::{Drafter, Proposals, Wanted};
use crate::clock::Clock;
use crate::cost::{CostModel, Work};
use crate::kv::Pool;
use crate::roster::Roster;
use crate::sequence::{Sequence, Slot};

/// Tokens of a sequence that are read at once: fewer are read with the next draft.
const READ_AT_ONCE: usize = 32;

/// Failed passes after which it drafts no more.
const MOST_FAILURES: u32 = 3;

/// Why a model can't draft for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Token ids mean different things.
    #[error(
        "the draft model has a vocabulary of {draft} tokens, the model that it drafts for one of {target}"
    )]
    Vocabulary {
        /// Of the draft model.
        draft: usize,
        /// Of the engine's model.
        target: usize,
    },
    /// Blocks can't go by the same names.
    #[error("the draft model has blocks of {draft} tokens, the model that it drafts for blocks of {target}")]
    Blocks {
        /// Of the draft model.
        draft: usize,
        /// Of the engine's model.
        target: usize,
    },
}

/// Drafts with a model.
pub struct DraftModel {
    executor: Box<dyn Executor>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    pool: Pool,
    cost: CostModel,
    /// By the index of the sequence's slot.
    readers: Vec<Reader>,
    batch: Batch,
    output: StepOutput,
    /// Sequences of the current pass, in the order of its rows.
    drafting: Vec<Drafting>,
    /// Positions that a sequence of the latest draft attended to, on average.
    mean_context: usize,
    failures: u32,
}

/// A sequence while it is drafted for.
#[derive(Clone, Copy, Debug)]
struct Drafting {
    /// Its index among those wanted.
    index: usize,
    slot: Slot,
}

impl DraftModel {
    /// A drafter for an engine with these limits.
    pub fn new(
        executor: Box<dyn Executor>,
        clock: Arc<dyn Clock>,
        target: &Limits,
    ) -> Result<Self, Mismatch> {
        let limits = executor.limits();
        if limits.vocab != target.vocab {
            return Err(Mismatch::Vocabulary { draft: limits.vocab, target: target.vocab });
        }
        if limits.block_tokens != target.block_tokens {
            return Err(Mismatch::Blocks { draft: limits.block_tokens, target: target.block_tokens });
        }
        Ok(Self {
            clock,
            pool: Pool::new(limits.blocks),
            cost: CostModel::from(limits.cost).with_sizes(limits.sizes),
            readers: Vec::new(),
            batch: Batch::with_room(&limits),
            output: StepOutput::default(),
            drafting: Vec::new(),
            mean_context: 0,
            failures: 0,
            limits,
            executor,
        })
    }

    /// Brings a sequence's reader up to what was said: drafts that were wrong are forgotten, cached blocks are taken over.
    fn sync(&mut self, slot: Slot, sequence: &Sequence) {
        let index = slot.index as usize;
        if index >= self.readers.len() {
            self.readers.resize_with(index + 1, Reader::default);
        }
        let reader = &mut self.readers[index];
        if reader.life != slot.life {
            reader.release(&mut self.pool);
            reader.life = slot.life;
        }
        reader.settle(sequence, &mut self.pool, self.limits.block_tokens);
    }

    /// Adds up to `tokens` unread tokens of a sequence to the batch; whether there was room for any.
    fn push_unread(&mut self, slot: Slot, sequence: &Sequence, tokens: usize) -> bool {
        let reader = &mut self.readers[slot.index as usize];
        let room = self.limits.step_tokens - self.batch.tokens.len();
        let end = (reader.computed + tokens.min(room)).min(sequence.tokens.len()).min(self.limits.context);
        if end <= reader.computed || !reader.hold(&mut self.pool, end, &self.limits, &mut self.batch) {
            return false;
        }
        let [prompt, answer] = sequence.tokens.range(reader.computed..end);
        self.batch.push_chunk(prompt, reader.computed, reader.table.blocks());
        self.batch.extend_last(answer);
        self.batch.class = self.batch.class.min(sequence.class());
        reader.computed = end;
        true
    }

    /// Computes the batch.
    fn compute(&mut self) -> Result<(), ExecutorError> {
        let chunk = |chunk: &Chunk| Work::chunk(chunk.start, chunk.tokens.len(), 0);
        let work = self.batch.chunks.iter().map(chunk).fold(Work::default(), Work::and);
        let work = Work { rows: self.batch.rows.len(), ..work };
        self.batch.expected = Duration::from_secs_f64(self.cost.predict(work));
        let began = self.clock.now();
        self.executor.execute(&self.batch, &mut self.output)?;
        let took = self.clock.now().saturating_sub(began).saturating_sub(self.output.waited);
        self.cost.observe(work, took);
        Ok(())
    }

    /// Computes the batch; should that fail, nothing that was read is to be trusted.
    fn compute_or_forget(&mut self) -> bool {
        if let Err(error) = self.compute() {
            self.failures += 1;
            if matches!(error, ExecutorError::Lost(_)) && self.executor.restart().is_err() {
                self.failures = MOST_FAILURES;
            }
            self.forget_all();
            return false;
        }
        true
    }

    fn forget_all(&mut self) {
        for reader in &mut self.readers {
            reader.release(&mut self.pool);
        }
        self.pool.forget();
    }

    /// The first pass: everything that is unread, and a token for each sequence.
    fn first_pass(&mut self, wanted: &[Wanted<'_>]) -> bool {
        self.begin();
        for (index, Wanted { slot, sequence, most }) in wanted.iter().enumerate() {
            self.sync(*slot, sequence);
            let unread = sequence.tokens.len() - self.readers[slot.index as usize].computed;
            let fits = sequence.tokens.len() + most <= self.limits.context
                && self.batch.tokens.len() + unread <= self.limits.step_tokens
                && self.batch.rows.len() < self.limits.step_rows;
            if unread > 0 && fits && self.push_unread(*slot, sequence, unread) {
                self.sample(sequence, &[]);
                self.drafting.push(Drafting { index, slot: *slot });
            }
        }
        let contexts: usize = wanted.iter().map(|wanted| wanted.sequence.tokens.len()).sum();
        self.mean_context = contexts / wanted.len().max(1);
        !self.drafting.is_empty() && self.compute_or_forget()
    }

    fn begin(&mut self) {
        self.batch.clear();
        self.batch.class = Class::Bulk;
        self.drafting.clear();
    }

    /// Asks for the token after the newest chunk, which ends with these drafts.
    fn sample(&mut self, sequence: &Sequence, drafted: &[u32]) {
        let params = SamplingParams { logprobs: None, ..sequence.params.clone() };
        let history = if params.uses_history() {
            History { prompt: sequence.tokens.prompt(), answer: sequence.tokens.answer(), drafted }
        } else {
            History::default()
        };
        self.batch.sample_last(&params, history);
    }

    /// Takes the tokens of the pass that was computed; those whose draft is over leave.
    fn take_drafts(&mut self, wanted: &[Wanted<'_>]) {
        let rows = std::mem::take(&mut self.output.rows);
        let mut results = rows.iter();
        self.drafting.retain(|Drafting { index, slot }| {
            let Wanted { sequence, most, .. } = &wanted[*index];
            let Some(Ok(sampled)) = results.next() else { return false };
            // An end that is right is chosen by the row before it.
            if sequence.ticket.ends.contains(&sampled.token) {
                return false;
            }
            let reader = &mut self.readers[slot.index as usize];
            reader.drafts.push(sampled.token);
            reader.drafts.len() < *most
        });
        self.output.rows = rows;
    }

    /// A pass over the latest draft of every sequence that wants more.
    fn next_pass(&mut self, wanted: &[Wanted<'_>]) -> bool {
        let going_on = std::mem::take(&mut self.drafting);
        self.begin();
        for Drafting { index, slot } in going_on {
            let sequence = wanted[index].sequence;
            let reader = &mut self.readers[slot.index as usize];
            let position = reader.computed;
            let drafts = reader.drafts.clone();
            let latest = *drafts.last().expect("who goes on has a draft");
            if reader.hold(&mut self.pool, position + 1, &self.limits, &mut self.batch) {
                reader.computed += 1;
                self.batch.push_chunk(&[latest], position, reader.table.blocks());
                self.batch.class = self.batch.class.min(sequence.class());
                self.sample(sequence, &drafts);
                self.drafting.push(Drafting { index, slot });
            }
        }
        !self.drafting.is_empty() && self.compute_or_forget()
    }

    /// Adds what is unread of a sequence to the batch, within the budget of tokens that is left.
    fn read_some(&mut self, slot: Slot, sequence: &Sequence, left: &mut usize) {
        if sequence.drafting.most == Some(0) {
            return;
        }
        self.sync(slot, sequence);
        let computed = self.readers[slot.index as usize].computed;
        let unread = sequence.computed.saturating_sub(computed);
        if unread >= READ_AT_ONCE && *left > 0 {
            let before = self.batch.tokens.len();
            self.push_unread(slot, sequence, unread.min(*left));
            *left -= self.batch.tokens.len() - before;
        }
    }
}

impl Drafter for DraftModel {
    fn read(&mut self, roster: &Roster, seconds: f64) {
        if self.failures >= MOST_FAILURES {
            return;
        }
        self.begin();
        let fixed = self.cost.predict(Work::default());
        let mut left =
            self.cost.tokens_within((seconds - fixed).max(0.0), self.mean_context, 0).max(READ_AT_ONCE);
        for slot in roster.running() {
            self.read_some(*slot, roster.get(*slot), &mut left);
        }
        if !self.batch.chunks.is_empty() {
            self.compute_or_forget();
        }
    }

    fn draft(&mut self, wanted: &mut dyn Iterator<Item = Wanted<'_>>, proposals: &mut Proposals) {
        if self.failures >= MOST_FAILURES {
            return;
        }
        let wanted: Vec<Wanted<'_>> = wanted.collect();
        let mut computed = self.first_pass(&wanted);
        while computed {
            self.take_drafts(&wanted);
            computed = self.next_pass(&wanted);
        }
        for Wanted { slot, .. } in &wanted {
            let drafts = self.readers.get(slot.index as usize).map_or(&[][..], |reader| &reader.drafts[..]);
            proposals.push(*slot, drafts.iter().copied());
        }
    }

    fn pass(&self, sequences: usize) -> f64 {
        let read = (sequences * self.mean_context) as u64;
        self.cost.predict(Work { tokens: sequences, rows: sequences, pairs: read, reads: read })
    }

    fn forget(&mut self, slot: Slot) {
        if let Some(reader) =
            self.readers.get_mut(slot.index as usize).filter(|reader| reader.life == slot.life)
        {
            reader.release(&mut self.pool);
        }
    }
}
