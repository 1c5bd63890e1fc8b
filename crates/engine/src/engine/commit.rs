//! Results of a step, put where they belong.

use std::ops::Range;
use std::time::Duration;

use ropeway_executor::{RowError, RowResult, Sampled};

use super::Engine;
use crate::draft::DEEPEST;
use crate::flight::Flight;
use crate::scheduler::Planned;
use crate::sequence::{Sequence, Slot};
use crate::stream::{Event, FinishReason};

impl Engine {
    /// Commits a whole step; its results are in `output`.
    pub(super) fn commit(&mut self, flight: &Flight, now: Duration) {
        let mut rows = std::mem::take(&mut self.output.rows);
        let mut rest = rows.as_mut_slice();
        for chunk in &flight.plan.chunks {
            let (results, others) = rest.split_at_mut(chunk.rows.min(rest.len()));
            rest = others;
            self.commit_chunk(flight.step, *chunk, results, now);
        }
        rows.clear();
        self.output.rows = rows;
    }

    /// Commits one chunk. Its sequence may have left, or lost the blocks, since it was planned.
    pub(super) fn commit_chunk(
        &mut self,
        step: u64,
        chunk: Planned,
        results: &mut [RowResult],
        now: Duration,
    ) {
        if self.roster.find(chunk.slot).is_none() {
            return;
        }
        let sequence = self.roster.get_mut(chunk.slot);
        sequence.land(step, chunk.certain(), chunk.epoch);
        let holds = sequence.epoch == chunk.epoch;
        let scored = sequence.scored_from(chunk.start, chunk.tokens).len().min(results.len());
        let (scores, chosen) = results.split_at_mut(scored);
        if damaged(scores) || damaged(chosen) {
            self.distrust(chunk.slot);
            return self.fail(chunk.slot, RowError::NotFinite, now);
        }
        self.report_scores(chunk, scores);
        if holds {
            self.advance(chunk, chunk.certain());
        }
        if chosen.is_empty() {
            return self.conclude_if_over(chunk, now);
        }
        if self.roster.get(chunk.slot).first_token.is_none() {
            self.open(chunk.slot, now);
        }
        let own = if chunk.drafted > 0 { chosen.len() } else { 1 };
        let (own, followers) = chosen.split_at_mut(own);
        self.fork(chunk, followers, now);
        self.take_tokens(chunk, own, now);
    }

    fn report_scores(&mut self, chunk: Planned, scores: &mut [RowResult]) {
        let sequence = self.roster.get_mut(chunk.slot);
        for (position, result) in sequence.scored_from(chunk.start, chunk.tokens).zip(scores) {
            if position <= sequence.told {
                continue;
            }
            // A score that can't be told is a token the model gives no chance.
            let token = sequence.tokens.get(position);
            let hopeless = Sampled { token, logprob: f32::NEG_INFINITY, top: vec![] };
            let score = std::mem::replace(result, Ok(Sampled::default()));
            sequence.tell(Event::Scored(score.unwrap_or(hopeless)));
            sequence.told = position;
        }
    }

    fn advance(&mut self, chunk: Planned, tokens: usize) {
        let limits = *self.roster.limits();
        let (sequence, pool) = self.roster.get_with_pool(chunk.slot);
        sequence.advance(tokens, pool, &limits);
        if chunk.prefill && sequence.is_prompt() {
            // After a preemption less may be there than was once found.
            let computed = sequence.computed.min(sequence.ticket.prompt_len);
            let cached = sequence.cached.min(computed);
            sequence.tell(Event::Prefilled { computed, cached });
        }
        // What is computed again is not charged again.
        let new = sequence.charge();
        let generated = usize::from(!chunk.prefill).min(new);
        self.scheduler.charge(self.roster.get(chunk.slot), new - generated, generated);
    }

    /// A chunk that chose nothing: the prompt goes on, or nothing may follow it.
    fn conclude_if_over(&mut self, chunk: Planned, now: Duration) {
        let sequence = self.roster.get(chunk.slot);
        if sequence.pending() > 0 || !sequence.is_over() {
            return;
        }
        if sequence.first_token.is_none() {
            self.open(chunk.slot, now);
        }
        self.conclude(chunk.slot, now);
    }

    /// Followers begin where the leader's prompt ends, each with its own token; those without a result wait for their turn.
    fn fork(&mut self, chunk: Planned, results: &mut [RowResult], now: Duration) {
        let leader = self.roster.get_mut(chunk.slot);
        if leader.followers.is_empty() {
            return;
        }
        let mut followers = std::mem::take(&mut leader.followers);
        let mut rest = followers.drain(results.len().min(followers.len())..);
        if let Some(mut next) = rest.next() {
            next.started = leader.started;
            next.followers = rest.collect();
            self.roster.wait(next);
        } else {
            drop(rest);
        }
        let holds = self.roster.get(chunk.slot).epoch == chunk.epoch;
        for (mut follower, result) in followers.into_iter().zip(results) {
            follower.started = self.roster.get(chunk.slot).started;
            let slot =
                if holds { self.roster.fork(chunk.slot, follower) } else { self.roster.wait(follower) };
            self.take_token(slot, std::mem::replace(result, Ok(Sampled::default())), now);
        }
    }

    /// A sequence's own rows: its next token, and those behind drafts that were right.
    fn take_tokens(&mut self, chunk: Planned, results: &mut [RowResult], now: Duration) {
        let sequence = self.roster.get_mut(chunk.slot);
        let holds = sequence.epoch == chunk.epoch;
        sequence.drafting.count_drafted(chunk.drafted);
        let (mut right, forced) = (0, sequence.drafting.forced);
        while let Some(result) = results.get_mut(right - forced.among(right)) {
            let sequence = self.roster.get_mut(chunk.slot);
            let known = sequence.tokens.len();
            // Counted before its reader is told of the token, who may stop there.
            let is_right = holds && says_draft(sequence, chunk, right, result);
            sequence.drafting.count_accepted(usize::from(is_right));
            self.take_row(chunk, std::mem::replace(result, Ok(Sampled::default())), now);
            let Some(sequence) = self.roster.find(chunk.slot) else { return };
            let said = sequence.tokens.len() - known;
            let drafts = &sequence.drafting.drafts()[right..chunk.drafted];
            let accepted = if holds { agreeing(sequence, known, drafts) } else { 0 };
            self.accept(chunk, right..right + accepted);
            // Behind the first, those that a grammar forced.
            let behind = accepted.saturating_sub(1);
            self.roster.get_mut(chunk.slot).drafting.count_accepted(behind);
            right += accepted;
            if accepted < said {
                break;
            }
        }
        if chunk.drafted > 0 {
            let block_tokens = self.roster.limits().block_tokens;
            let (sequence, pool) = self.roster.get_with_pool(chunk.slot);
            sequence.trim(pool, block_tokens);
        }
    }

    /// These drafts of a chunk were right.
    fn accept(&mut self, chunk: Planned, drafts: Range<usize>) {
        if drafts.is_empty() {
            return;
        }
        self.record.accepted += drafts.len();
        for draft in drafts.clone() {
            self.metrics.accepted_at[draft.min(DEEPEST - 1)] += 1;
        }
        self.advance(chunk, drafts.len());
    }

    /// The result of a row. Where there are drafts, its sequence's guide has not heard of it yet.
    fn take_row(&mut self, chunk: Planned, result: RowResult, now: Duration) {
        let sequence = self.roster.get_mut(chunk.slot);
        let is_guided = chunk.drafted > 0 && !sequence.guidance.is_free();
        let result = result.and_then(|sampled| {
            if is_guided && !sequence.ticket.ends.contains(&sampled.token) {
                sequence.guidance.accept(sampled.token)?;
            }
            Ok(sampled)
        });
        self.take_token(chunk.slot, result, now);
    }

    fn take_token(&mut self, slot: Slot, result: RowResult, now: Duration) {
        let sampled = match result {
            Ok(sampled) => sampled,
            Err(error) => return self.fail(slot, error, now),
        };
        self.metrics.generated_tokens += 1;
        let sequence = self.roster.get_mut(slot);
        self.metrics.token(sequence, now);
        let token = sampled.token;
        if sequence.ticket.ends.contains(&token) {
            let landed = sequence.guidance.has_landed();
            let reason = if landed { FinishReason::Length } else { FinishReason::End(token) };
            return self.finish(slot, &reason, now);
        }
        sequence.tokens.extend(&[token]);
        sequence.tell_token(sampled);
        let forced = sequence.guidance.follow(&mut sequence.tokens, sequence.ticket.max_len);
        sequence.tell_last(forced);
        self.record.forced += forced;
        if sequence.is_over() {
            self.conclude(slot, now);
        }
    }

    /// A sequence and its followers begin with what their grammar forces.
    fn open(&mut self, slot: Slot, now: Duration) {
        let leader = self.roster.get_mut(slot);
        let opening = leader.guidance.opening;
        if opening == 0 {
            return;
        }
        for index in 0..leader.rows() {
            let sequence = if index == 0 { &mut *leader } else { &mut leader.followers[index - 1] };
            self.metrics.token(sequence, now);
            sequence.tell_last(opening);
            self.record.forced += opening;
        }
    }

    /// Ends a sequence that may not grow.
    fn conclude(&mut self, slot: Slot, now: Duration) {
        let guidance = &self.roster.get(slot).guidance;
        let complete = guidance.is_complete() && !guidance.has_landed();
        self.finish(slot, if complete { &FinishReason::Complete } else { &FinishReason::Length }, now);
    }

    fn fail(&mut self, slot: Slot, error: RowError, now: Duration) {
        self.finish(slot, &FinishReason::Failed(error.into()), now);
    }
}

/// Whether a row's token is the next draft of its chunk, and part of the answer.
fn says_draft(sequence: &Sequence, chunk: Planned, draft: usize, result: &RowResult) -> bool {
    let drafts = &sequence.drafting.drafts()[..chunk.drafted];
    let is_said = |sampled: &Sampled| drafts.get(draft) == Some(&sampled.token);
    let is_end = |sampled: &Sampled| sequence.ticket.ends.contains(&sampled.token);
    result.as_ref().is_ok_and(|sampled| is_said(sampled) && !is_end(sampled))
}

/// How many of a sequence's tokens from `known` on are the drafts that stood there.
fn agreeing(sequence: &Sequence, known: usize, drafts: &[u32]) -> usize {
    let said = (known..sequence.tokens.len()).map(|position| sequence.tokens.get(position));
    said.zip(drafts).take_while(|(said, draft)| said == *draft).count()
}

/// Whether the forward pass gave something that is no number: what it wrote is not to be trusted either.
fn damaged(results: &[RowResult]) -> bool {
    results.iter().any(|result| matches!(result, Err(RowError::NotFinite)))
}
