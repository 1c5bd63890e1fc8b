//! A step between its launch and its collection, and how a plan becomes a batch.

use std::sync::Arc;
use std::time::Duration;

use ropeway_executor::{Batch, History, Limits, SamplingParams};

use crate::clock::Clock;
use crate::guide::StepGuides;
use crate::roster::Roster;
use crate::scheduler::{Plan, Planned};
use crate::sequence::{Gives, Sequence};

/// A step that was planned: what it computes, and when it was launched. Kept and refilled.
pub(crate) struct Flight {
    /// Its number.
    pub(crate) step: u64,
    pub(crate) plan: Plan,
    pub(crate) batch: Batch,
    pub(crate) guides: StepGuides,
    /// When it was begun to be planned.
    pub(crate) began: Duration,
    /// When it was launched.
    pub(crate) launched: Duration,
    /// How long launching it took.
    pub(crate) launching: Duration,
}

impl Flight {
    pub(crate) fn new(limits: &Limits, clock: Arc<dyn Clock>) -> Self {
        Self {
            step: 0,
            plan: Plan::default(),
            batch: Batch::with_room(limits),
            guides: StepGuides::new(clock),
            began: Duration::ZERO,
            launched: Duration::ZERO,
            launching: Duration::ZERO,
        }
    }

    /// Fills the batch with the whole plan.
    pub(crate) fn fill(&mut self, roster: &Roster) {
        self.clear();
        self.batch.copies.extend_from_slice(&self.plan.copies);
        for index in 0..self.plan.chunks.len() {
            self.push(roster, self.plan.chunks[index]);
        }
    }

    /// Fills the batch with nothing but the copies of the plan.
    pub(crate) fn fill_copies(&mut self) {
        self.clear();
        self.batch.copies.extend_from_slice(&self.plan.copies);
    }

    /// Fills the batch with one chunk of the plan.
    pub(crate) fn fill_one(&mut self, roster: &Roster, chunk: Planned) {
        self.clear();
        self.push(roster, chunk);
    }

    /// Tells every sequence of the plan that a part of it is in flight.
    pub(crate) fn take_off(&self, roster: &mut Roster) {
        let mut row = 0;
        for chunk in &self.plan.chunks {
            let sequence = roster.get_mut(chunk.slot);
            let ends = chunk.tokens >= sequence.pending();
            let plain = chunk.drafted == 0 && sequence.is_plain();
            let gives = match (ends, plain && chunk.rows == 1) {
                (false, _) => Gives::Nothing,
                (true, true) => Gives::Token(row),
                (true, false) => Gives::Unclear,
            };
            sequence.take_off(self.step, chunk.certain(), gives);
            row += chunk.rows;
        }
    }

    fn clear(&mut self) {
        self.batch.clear();
        self.batch.class = self.plan.class;
        self.batch.expected = Duration::from_secs_f64(self.plan.predicted);
        self.guides.clear();
    }

    /// Adds a sequence's chunk to the batch.
    fn push(&mut self, roster: &Roster, chunk: Planned) {
        let sequence = roster.get(chunk.slot);
        let batch = &mut self.batch;
        let (first, end) = (batch.tokens.len(), chunk.start + chunk.tokens);
        push_tokens(batch, sequence, chunk);
        let params = SamplingParams { logprobs: sequence.score, ..SamplingParams::greedy() };
        let scored = sequence.scored_from(chunk.start, chunk.tokens);
        for position in scored.clone() {
            batch.score(first + position - 1 - chunk.start, sequence.tokens.get(position), &params);
        }
        let chosen = chunk.rows - scored.len();
        if chosen == 0 {
            return;
        }
        debug_assert!(end >= sequence.tokens.len(), "only what is known to its end is continued");
        if chunk.drafted > 0 {
            let forced = sequence.drafting.forced;
            let chosen =
                (0..=chunk.drafted).filter(|drafted| *drafted == chunk.drafted || !forced.has(*drafted));
            return chosen.for_each(|drafted| self.sample(sequence, chunk, drafted));
        }
        self.sample(sequence, chunk, 0);
        for follower in &sequence.followers[..chosen - 1] {
            self.sample(follower, chunk, 0);
        }
    }

    /// Adds the row that chooses the token after the first `drafted` drafts.
    fn sample(&mut self, sequence: &Sequence, chunk: Planned, drafted: usize) {
        let index = chunk.tokens - 1 - chunk.drafted + drafted;
        let history = history(sequence, drafted);
        let drafts = (chunk.drafted > 0).then(|| &sequence.drafting.drafts()[..drafted]);
        if let Some(guide) = self.guides.add(sequence, drafts) {
            self.batch.sample(index, &sequence.params, history);
            self.batch.guide_last(guide);
        } else if chunk.start + index + 1 < sequence.ticket.prompt_len + sequence.ticket.min_tokens {
            self.batch.sample(index, &without_ends(sequence), history);
        } else {
            self.batch.sample(index, &sequence.params, history);
        }
    }
}

/// Adds a chunk's tokens: known ones, one that the step in flight chooses, drafted ones.
fn push_tokens(batch: &mut Batch, sequence: &Sequence, chunk: Planned) {
    let end = chunk.start + chunk.certain();
    let [prompt, answer] = sequence.tokens.range(chunk.start..end.min(sequence.tokens.len()));
    batch.push_chunk(prompt, chunk.start, sequence.table.blocks());
    batch.extend_last(answer);
    if end > sequence.tokens.len() {
        batch.extend_last(&[0]);
        batch.feed_last(sequence.fed().expect("one token more than is known is in flight"));
    }
    batch.extend_last(&sequence.drafting.drafts()[..chunk.drafted]);
}

fn history(sequence: &Sequence, drafted: usize) -> History<'_> {
    if !sequence.params.uses_history() {
        return History::default();
    }
    let (prompt, answer) = (sequence.tokens.prompt(), sequence.tokens.answer());
    History { prompt, answer, drafted: &sequence.drafting.drafts()[..drafted] }
}

/// Parameters under which the sequence can't end yet.
fn without_ends(sequence: &Sequence) -> SamplingParams {
    SamplingParams { logit_bias: sequence.ticket.early_biases.clone(), ..sequence.params.clone() }
}
