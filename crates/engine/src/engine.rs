//! The step loop: hear, decide, compute, publish.
//!
//! ```text
//! inbox ──> drain ──> plan ──> fill ──> execute ──> commit ──> events
//! ```
//! One [`Engine`] owns all state, on one thread: there is no lock to hold. It knows no text, no network and no time
//! but its clock's; the same inbox, clock and executor give the same steps. A failing sequence is ended alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use ropeway_executor::{
    Batch, Executor, ExecutorError, History, RowResult, Sampled, SamplingParams, StepOutput,
};

use crate::board::Board;
use crate::clock::Clock;
use crate::guide::{Progress, StepGuides};
use crate::handle::{Handle, Submission};
use crate::metrics::Metrics;
use crate::record::StepRecord;
use crate::roster::Roster;
use crate::scheduler::{Plan, Planned, Scheduler};
use crate::sequence::{Sequence, Slot};
use crate::settings::Settings;
use crate::stream::{Event, FinishReason, SequenceError};

/// What a turn of the engine came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// A step was computed.
    Ran,
    /// Nobody is here.
    Idle,
}

/// Continuous batching over an executor.
pub struct Engine {
    executor: Box<dyn Executor>,
    clock: Arc<dyn Clock>,
    inbox: Receiver<Submission>,
    board: Arc<Board>,
    scheduler: Scheduler,
    roster: Roster,
    metrics: Metrics,
    plan: Plan,
    batch: Batch,
    guides: StepGuides,
    output: StepOutput,
    record: StepRecord,
    leaving: Vec<Slot>,
}

impl Engine {
    /// An engine, and the handle through which requests reach it. Call [`Engine::step`] to turn it by hand, or
    /// [`spawn`](crate::spawn) to give it a thread of its own.
    pub fn new(executor: Box<dyn Executor>, clock: Arc<dyn Clock>, settings: &Settings) -> (Self, Handle) {
        let limits = executor.limits();
        let (handle, inbox, board) = Handle::new(limits, Arc::clone(&clock), settings);
        let most = settings.queue + limits.step_rows;
        let engine = Self {
            executor,
            guides: StepGuides::new(Arc::clone(&clock)),
            clock,
            inbox,
            board,
            scheduler: Scheduler::new(settings.policy, settings.pace, settings.cost.clone()),
            roster: Roster::new(limits, most),
            metrics: Metrics::default(),
            plan: Plan::default(),
            batch: Batch::with_room(&limits),
            output: StepOutput::default(),
            record: StepRecord::default(),
            leaving: Vec::with_capacity(most),
        };
        (engine, handle)
    }

    /// One turn: takes in what arrived, lets go what left, computes a step.
    pub fn step(&mut self) -> Stepped {
        let began = self.clock.now();
        self.record = StepRecord { step: self.record.step, at: began, ..StepRecord::default() };
        self.drain_inbox();
        self.dismiss(began);
        self.scheduler.plan(&mut self.roster, began, &mut self.plan);
        if self.plan.is_empty() {
            self.publish_idle();
            return Stepped::Idle;
        }
        self.mark_started(began);
        let planned = self.clock.now();
        let whole = self.execute();
        let executed = self.clock.now();
        if whole {
            self.scheduler.cost.observe(self.plan.work, executed.saturating_sub(planned));
        }
        self.commit(executed);
        self.publish([began, planned, executed]);
        Stepped::Ran
    }

    /// Whether it was told to stop.
    pub(crate) fn stopped(&self) -> bool {
        self.board.stopped()
    }

    /// Waits for a submission; `false` when there can be no more.
    pub(crate) fn wait(&mut self) -> bool {
        match self.inbox.recv() {
            Ok(submission) => {
                self.take_in(submission);
                true
            }
            Err(_) => false,
        }
    }

    /// What is here now; for simulations and tests.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// The step just planned or computed; for simulations and tests.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What steps cost, as far as it learnt.
    pub fn cost(&self) -> &crate::cost::CostModel {
        &self.scheduler.cost
    }

    fn drain_inbox(&mut self) {
        while let Ok(submission) = self.inbox.try_recv() {
            self.take_in(submission);
        }
    }

    fn take_in(&mut self, Submission(sequence): Submission) {
        self.metrics.requests += 1;
        for _ in 0..sequence.rows() {
            self.scheduler.arrive(&sequence);
        }
        self.roster.wait(sequence);
    }

    /// Ends what was cancelled or is too late, wherever it is.
    fn dismiss(&mut self, now: Duration) {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.clear();
        let everyone = self.roster.waiting().iter().chain(self.roster.running());
        leaving.extend(everyone.filter(|slot| overdue(self.roster.get(**slot), now).is_some()));
        for slot in &leaving {
            if let Some(reason) = overdue(self.roster.get(*slot), now) {
                self.finish(*slot, &reason, now);
            }
        }
        self.leaving = leaving;
    }

    fn mark_started(&mut self, now: Duration) {
        for chunk in &self.plan.chunks {
            let started = &mut self.roster.get_mut(chunk.slot).started;
            if started.replace(started.unwrap_or(now)).is_none() {
                self.board.dequeue();
            }
        }
    }

    /// Computes the plan. If that fails as a whole (`false`), each of its chunks alone, so that only the culprit fails.
    fn execute(&mut self) -> bool {
        self.start_batch();
        self.batch.copies.extend_from_slice(&self.plan.copies);
        for chunk in &self.plan.chunks {
            fill(&mut self.batch, &mut self.guides, self.roster.get(chunk.slot), *chunk);
        }
        self.record.guided = self.guides.rows();
        let whole = self.run().is_ok();
        if !whole {
            self.execute_each();
        }
        whole
    }

    fn execute_each(&mut self) {
        let mut rows = Vec::new();
        let mut failed = Vec::new();
        self.start_batch();
        self.batch.copies.extend_from_slice(&self.plan.copies);
        let mut copied = self.run();
        let chunks = std::mem::take(&mut self.plan.chunks);
        for chunk in &chunks {
            self.start_batch();
            fill(&mut self.batch, &mut self.guides, self.roster.get(chunk.slot), *chunk);
            match copied.clone().and_then(|()| self.run()) {
                Ok(()) => rows.append(&mut self.output.rows),
                Err(error) => failed.push((chunk.slot, error)),
            }
        }
        self.plan.chunks = chunks;
        if failed.len() == self.plan.chunks.len() {
            // Nothing works: the device may have lost what it held.
            copied = Err(ExecutorError::Lost("it computes nothing any more".into()));
        }
        self.output.rows = rows;
        let now = self.clock.now();
        for (slot, error) in failed {
            self.plan.chunks.retain(|chunk| chunk.slot != slot);
            self.finish(slot, &FinishReason::Failed(SequenceError::Step(error.to_string())), now);
        }
        if copied.is_err() {
            self.roster.start_over();
        }
    }

    fn start_batch(&mut self) {
        self.batch.clear();
        self.guides.clear();
    }

    /// Runs the batch; a panic on the way is an error like any other.
    fn run(&mut self) -> Result<(), ExecutorError> {
        let Self { executor, batch, guides, output, .. } = self;
        let result = catch_unwind(AssertUnwindSafe(|| {
            executor.launch(batch, guides).and_then(|()| executor.collect(guides, output))
        }));
        result.unwrap_or_else(|_| Err(ExecutorError::Step("it panicked; see the log".into())))
    }

    /// Puts the results where they belong.
    fn commit(&mut self, now: Duration) {
        let mut rows = std::mem::take(&mut self.output.rows);
        let mut results = rows.drain(..);
        let chunks = std::mem::take(&mut self.plan.chunks);
        for chunk in &chunks {
            self.report_scores(*chunk, &mut results);
            self.advance(*chunk);
            let sequence = self.roster.get(chunk.slot);
            if sequence.pending() > 0 {
                continue;
            }
            let (opens, may_grow) =
                (sequence.opening > 0 && sequence.first_token.is_none(), sequence.may_grow());
            if opens {
                self.open(chunk.slot, now);
            }
            if may_grow {
                self.sampled(*chunk, &mut results, now);
            } else {
                self.conclude(chunk.slot, now);
            }
        }
        drop(results);
        self.plan.chunks = chunks;
        self.output.rows = rows;
    }

    fn report_scores(&mut self, chunk: Planned, results: &mut impl Iterator<Item = RowResult>) {
        let sequence = self.roster.get_mut(chunk.slot);
        for (position, result) in sequence.scored(chunk.tokens).zip(results) {
            if position <= sequence.told {
                continue;
            }
            // A score that can't be told is a token the model gives no chance.
            let hopeless =
                Sampled { token: sequence.tokens[position], logprob: f32::NEG_INFINITY, top: vec![] };
            sequence.tell(Event::Scored(result.unwrap_or(hopeless)));
            sequence.told = position;
        }
    }

    fn advance(&mut self, chunk: Planned) {
        let block_tokens = self.roster.limits().block_tokens;
        let (sequence, pool) = self.roster.get_with_pool(chunk.slot);
        sequence.advance(chunk.tokens, pool, block_tokens);
        let prompt_len = sequence.ticket.prompt_len;
        if chunk.prefill && sequence.is_prompt() {
            // After a preemption less may be there than was once found.
            let computed = sequence.computed.min(prompt_len);
            let cached = sequence.cached.min(computed);
            sequence.tell(Event::Prefilled { computed, cached });
        }
        let generated = usize::from(!chunk.prefill);
        self.scheduler.charge(self.roster.get(chunk.slot), chunk.tokens - generated, generated);
    }

    /// A sequence's row, and those of its followers, which begin here.
    fn sampled(&mut self, chunk: Planned, results: &mut impl Iterator<Item = RowResult>, now: Duration) {
        let followers = std::mem::take(&mut self.roster.get_mut(chunk.slot).followers);
        let own = results.next();
        for follower in followers {
            let slot = self.roster.fork(chunk.slot, follower);
            if let Some(result) = results.next() {
                self.take_token(slot, result, now);
            }
        }
        if let Some(result) = own {
            self.take_token(chunk.slot, result, now);
        }
    }

    fn take_token(&mut self, slot: Slot, result: RowResult, now: Duration) {
        let sampled = match result {
            Ok(sampled) => sampled,
            Err(error) => return self.finish(slot, &FinishReason::Failed(error.into()), now),
        };
        self.metrics.generated_tokens += 1;
        let sequence = self.roster.get_mut(slot);
        self.metrics.token(sequence, now);
        let token = sampled.token;
        if sequence.ticket.ends.contains(&token) {
            let reason = if sequence.has_landed() { FinishReason::Length } else { FinishReason::End(token) };
            return self.finish(slot, &reason, now);
        }
        sequence.tokens.push(token);
        sequence.tell(Event::Token { sequence: sequence.index, sampled });
        if let Some(guide) = &sequence.guide {
            let following = guide.following();
            sequence.take_forced(&following);
            sequence.tell_last(sequence.forced);
            self.record.forced += sequence.forced;
        }
        if !sequence.may_grow() {
            self.conclude(slot, now);
        }
    }

    /// A sequence and its followers begin with what their grammar forces.
    fn open(&mut self, slot: Slot, now: Duration) {
        let leader = self.roster.get_mut(slot);
        let opening = leader.opening;
        for index in 0..leader.rows() {
            let sequence = if index == 0 { &mut *leader } else { &mut leader.followers[index - 1] };
            self.metrics.token(sequence, now);
            sequence.tell_last(opening);
            self.record.forced += opening;
        }
    }

    /// Ends a sequence that may not grow.
    fn conclude(&mut self, slot: Slot, now: Duration) {
        let sequence = self.roster.get(slot);
        let reason = match sequence.progress {
            Progress::Complete if !sequence.has_landed() => FinishReason::Complete,
            Progress::Complete | Progress::Open => FinishReason::Length,
        };
        self.finish(slot, &reason, now);
    }

    /// Ends a sequence, and its followers that have not begun.
    fn finish(&mut self, slot: Slot, reason: &FinishReason, now: Duration) {
        let sequence = self.roster.remove(slot);
        if sequence.started.is_none() {
            self.board.dequeue();
        }
        for ended in std::iter::once(&sequence).chain(&sequence.followers) {
            self.scheduler.depart(ended, now);
            self.record.finished += 1;
            let usage = ended.usage(reason, now);
            self.metrics.finish(ended.class(), reason, &usage);
            ended.tell(Event::Finished { sequence: ended.index, reason: reason.clone(), usage });
        }
    }

    fn publish(&mut self, [began, planned, executed]: [Duration; 3]) {
        let record = &mut self.record;
        record.guiding = self.guides.take_spent();
        record.step += 1;
        record.prefill_tokens = self.plan.prefill_tokens;
        record.decode_tokens = self.plan.work.tokens - self.plan.prefill_tokens;
        record.cached_tokens = self.plan.cached_tokens;
        record.admitted = self.plan.admitted;
        record.preempted = self.plan.preempted;
        record.running = self.roster.running().len();
        record.waiting = self.roster.waiting().len();
        record.blocks = self.roster.pool.counts();
        record.plan = planned.saturating_sub(began);
        record.execute = executed.saturating_sub(planned);
        record.predicted = Duration::from_secs_f64(self.plan.predicted);
        record.allowed = Duration::from_secs_f64(self.plan.allowed);
        record.commit = self.clock.now().saturating_sub(executed);
        self.metrics.step(record, self.roster.limits().step_rows);
        self.board.publish(Some(record), &self.metrics);
        if cfg!(debug_assertions) {
            self.roster.audit();
        }
    }

    fn publish_idle(&mut self) {
        debug_assert!(self.roster.waiting().is_empty(), "whoever waits on an empty machine gets a chunk");
        self.metrics.running = self.roster.running().len();
        self.metrics.waiting = self.roster.waiting().len();
        (self.metrics.slot_use, self.metrics.kv_use) = (0.0, 0.0);
        self.board.publish(None, &self.metrics);
        if cfg!(debug_assertions) {
            self.roster.audit();
        }
    }
}

/// Adds a sequence's chunk to the batch.
fn fill(batch: &mut Batch, guides: &mut StepGuides, sequence: &Sequence, chunk: Planned) {
    let (first, end) = (batch.tokens.len(), sequence.computed + chunk.tokens);
    batch.push_chunk(&sequence.tokens[sequence.computed..end], sequence.computed, sequence.table.blocks());
    let params = SamplingParams { logprobs: sequence.score, ..SamplingParams::greedy() };
    for position in sequence.scored(chunk.tokens) {
        batch.score(first + position - 1 - sequence.computed, sequence.tokens[position], &params);
    }
    if end < sequence.len() || !sequence.may_grow() {
        return;
    }
    for sampled in std::iter::once(sequence).chain(&sequence.followers) {
        let history = history(sampled);
        if let Some(guide) = guides.add(sampled) {
            batch.sample_last(&sampled.params, history);
            batch.guide_last(guide);
        } else if sampled.generated() < sampled.ticket.min_tokens {
            batch.sample_last(&without_ends(sampled), history);
        } else {
            batch.sample_last(&sampled.params, history);
        }
    }
}

fn history(sequence: &Sequence) -> History<'_> {
    if !sequence.params.uses_history() {
        return History::default();
    }
    let (prompt, answer) = sequence.tokens.split_at(sequence.ticket.prompt_len);
    History { prompt, answer, drafted: &[] }
}

/// Parameters under which the sequence can't end yet.
fn without_ends(sequence: &Sequence) -> SamplingParams {
    let mut params = sequence.params.clone();
    params.logit_bias.extend(sequence.ticket.ends.iter().map(|end| (*end, f32::NEG_INFINITY)));
    params
}

/// Why a sequence should not be here any more.
fn overdue(sequence: &Sequence, now: Duration) -> Option<FinishReason> {
    let ticket = &sequence.ticket;
    // A leader goes on for the sake of its followers.
    let mut everyone = std::iter::once(sequence).chain(&sequence.followers);
    if everyone.all(|one| ticket.events.is_cancelled(one.index)) {
        return Some(FinishReason::Cancelled);
    }
    let late = ticket.end_by.is_some_and(|end| now >= end);
    let stale = sequence.started.is_none() && ticket.begin_by.is_some_and(|begin| now >= begin);
    (late || stale).then_some(FinishReason::TimedOut)
}
