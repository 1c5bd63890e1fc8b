//! The step loop: hear, decide, compute, publish.
//!
//! ```text
//! inbox ──> drain ──> plan ──> fill ──> launch        collect ──> commit ──> events
//! ```
//! One [`Engine`] owns all state, on one thread: there is no lock to hold. It knows no text, no network and no time
//! but its clock's; the same inbox, clock and executor give the same steps. Where the executor allows it
//! ([`Limits::ahead`](ropeway_executor::Limits::ahead)), the next step is planned and launched before the last one is
//! collected. [`commit`] puts results where they belong; a failing sequence is ended alone ([`recover`]).

mod commit;
mod gather;
mod publish;
pub(crate) mod recover;
mod tiers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use ropeway_executor::{BlockId, Executor, StepOutput};

use self::recover::Losses;
use crate::board::Board;
use crate::clock::Clock;
use crate::cost::CostModel;
use crate::draft::{Conditions, Drafter, Speculation, Speculator};
use crate::flight::Flight;
use crate::handle::{Handle, Submission};
use crate::metrics::Metrics;
use crate::record::StepRecord;
use crate::roster::Roster;
use crate::scheduler::{Plan, Scheduler};
use crate::sequence::{Sequence, Slot};
use crate::settings::Settings;
use crate::stream::{Event, FinishReason};
use crate::tier::Keeper;

/// A step that waited so long for the hardware shares it with other models.
const CONTENDED: Duration = Duration::from_millis(1);

/// How often an engine that has nothing else to do looks for blocks that arrived.
const MOMENT: Duration = Duration::from_millis(1);

/// What a turn of the engine came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// A step was launched or collected.
    Ran,
    /// There is nothing to compute: everyone here waits for blocks from a lower tier.
    Waiting,
    /// Nobody is here.
    Idle,
    /// The device was lost and could not be restarted: every request has ended, and no more can be served.
    Lost,
}

/// Continuous batching over an executor.
pub struct Engine {
    executor: Box<dyn Executor>,
    clock: Arc<dyn Clock>,
    inbox: Receiver<Submission>,
    board: Arc<Board>,
    scheduler: Scheduler,
    speculator: Speculator,
    keeper: Option<Keeper>,
    roster: Roster,
    metrics: Metrics,
    /// Steps that may be in flight when another one is launched.
    ahead: usize,
    /// Steps that were launched and not collected, the oldest first.
    flights: VecDeque<Flight>,
    /// Memory of flights that are over; the latest last.
    hangar: Vec<Flight>,
    output: StepOutput,
    record: StepRecord,
    /// When the last step was collected.
    collected: Duration,
    /// How long it took to compute.
    executed: Duration,
    /// Copies of a step that never ran, due before the next one.
    due_copies: Vec<(BlockId, BlockId)>,
    leaving: Vec<Slot>,
    losses: Losses,
    lost: bool,
}

impl Engine {
    /// An engine, and the handle through which requests reach it. Call [`Engine::step`] to turn it by hand, or
    /// [`spawn`](crate::spawn) to give it a thread of its own.
    pub fn new(executor: Box<dyn Executor>, clock: Arc<dyn Clock>, settings: &Settings) -> (Self, Handle) {
        let limits = executor.limits();
        let (handle, inbox, board) = Handle::new(limits, Arc::clone(&clock), settings);
        let most = settings.queue + limits.step_rows;
        let cost = settings.cost.clone().unwrap_or_else(|| limits.cost.into()).with_sizes(limits.sizes);
        let flight = |_| Flight::new(&limits, Arc::clone(&clock));
        let engine = Self {
            executor,
            inbox,
            board,
            scheduler: Scheduler::new(settings.policy, settings.pace, cost),
            speculator: Speculator::new(None, settings.speculation),
            keeper: None,
            roster: Roster::new(limits, most),
            metrics: Metrics::default(),
            ahead: limits.ahead,
            flights: VecDeque::with_capacity(limits.ahead + 1),
            hangar: (0..=limits.ahead).map(flight).collect(),
            output: StepOutput::default(),
            record: StepRecord::default(),
            collected: Duration::ZERO,
            executed: Duration::ZERO,
            due_copies: Vec::new(),
            leaving: Vec::with_capacity(most),
            losses: Losses::default(),
            lost: false,
            clock,
        };
        let engine = match &settings.tier {
            Some(tier) if limits.block_bytes > 0 => engine.with_tier(Arc::clone(tier)),
            _ => engine,
        };
        (engine, handle)
    }

    /// The same engine with a drafter beside prompt lookup.
    pub fn with_drafter(mut self, drafter: Box<dyn Drafter>, speculation: Speculation) -> Self {
        self.speculator = Speculator::new(Some(drafter), speculation);
        self
    }

    /// The same engine with one step at a time in flight: what a sequence says is known before the next step is planned, so that
    /// drafts can be made for it.
    pub fn one_step_at_a_time(mut self) -> Self {
        self.ahead = 0;
        self
    }

    /// One turn: takes in what arrived, lets go what left, launches a step, and collects one if as many are in flight as
    /// may be.
    pub fn step(&mut self) -> Stepped {
        if self.lost {
            return Stepped::Lost;
        }
        let began = self.clock.now();
        self.drain_inbox();
        self.dismiss(began);
        self.keep(began);
        self.draft();
        let launched = self.launch(began);
        let full = self.flights.len() > self.ahead;
        match (launched, self.flights.is_empty()) {
            (false, true) if self.lost => Stepped::Lost,
            (false, true) if self.is_fetching() => Stepped::Waiting,
            (false, true) => {
                self.publish_idle();
                Stepped::Idle
            }
            (_, false) if full || !launched => {
                self.collect();
                if self.lost { Stepped::Lost } else { Stepped::Ran }
            }
            _ => Stepped::Ran,
        }
    }

    /// Whether it was told to stop.
    pub(crate) fn stopped(&self) -> bool {
        self.board.stopped()
    }

    /// Waits for a submission, or until blocks are to be stored; `false` when there can be no more submissions.
    pub(crate) fn wait(&mut self) -> bool {
        let heard = match self.keeper.as_ref().and_then(Keeper::next) {
            None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(errand) => self.inbox.recv_timeout(errand.saturating_sub(self.clock.now())),
        };
        let came = heard.is_ok();
        let goes_on = self.hear(heard);
        if came {
            self.gather();
        }
        goes_on
    }

    /// Waits for a submission or a moment, in which blocks may arrive.
    pub(crate) fn wait_a_moment(&mut self) {
        let heard = self.inbox.recv_timeout(MOMENT);
        if !self.hear(heard) {
            std::thread::sleep(MOMENT);
        }
    }

    fn hear(&mut self, heard: Result<Submission, RecvTimeoutError>) -> bool {
        match heard {
            Ok(submission) => self.take_in(submission),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        true
    }

    /// What is here now; for simulations and tests.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// The step that was planned last; for simulations and tests.
    pub fn plan(&self) -> &Plan {
        let latest = self.flights.back().or(self.hangar.last());
        &latest.expect("every flight is in the air or in the hangar").plan
    }

    /// What steps cost, as far as it learnt.
    pub fn cost(&self) -> &CostModel {
        &self.scheduler.cost
    }

    fn drain_inbox(&mut self) {
        while let Ok(submission) = self.inbox.try_recv() {
            self.take_in(submission);
        }
    }

    fn take_in(&mut self, submission: Submission) {
        let sequence = match submission {
            Submission::Sequence(sequence) => sequence,
            Submission::Locate { names, tell } => return tell(self.locate(&names)),
            Submission::Evict { names, forget } => return self.evict(&names, forget),
            Submission::Wake => return,
        };
        self.metrics.requests += 1;
        for _ in 0..sequence.rows() {
            self.scheduler.arrive(&sequence);
        }
        self.roster.wait(*sequence);
    }

    /// Ends what was cancelled or is too late, wherever it is.
    fn dismiss(&mut self, now: Duration) {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.clear();
        leaving.extend(self.roster.everyone().filter(|slot| overdue(self.roster.get(*slot), now).is_some()));
        for slot in &leaving {
            if let Some(reason) = overdue(self.roster.get(*slot), now) {
                self.finish(*slot, &reason, now);
            }
        }
        self.leaving = leaving;
    }

    fn draft(&mut self) {
        let Scheduler { cost, pace, .. } = &self.scheduler;
        let conditions = Conditions { cost, pace: *pace, guiding: self.metrics.guiding_each() };
        self.speculator.draft(&mut self.roster, conditions);
    }

    /// Plans a step and launches it; whether there was anything to launch.
    fn launch(&mut self, began: Duration) -> bool {
        let mut flight = self.hangar.pop().expect("no more are in flight than may be");
        self.scheduler.plan(&mut self.roster, began, &mut flight.plan);
        self.spill(&flight.plan, began);
        if flight.plan.is_empty() {
            self.hangar.push(flight);
            return false;
        }
        flight.plan.copies.splice(..0, self.due_copies.drain(..));
        for chunk in &flight.plan.chunks {
            self.mark_started(chunk.slot, began);
        }
        self.record.step += 1;
        (flight.step, flight.began) = (self.record.step, began);
        flight.fill(&self.roster);
        flight.take_off(&mut self.roster);
        flight.launched = self.clock.now();
        let launched = recover::confined(|| self.executor.launch(&flight.batch, &flight.guides));
        flight.launching = self.clock.now().saturating_sub(flight.launched);
        self.flights.push_back(flight);
        if let Err(error) = launched {
            self.launch_failed(&error);
        }
        true
    }

    /// Waits for the oldest step in flight and commits it.
    fn collect(&mut self) {
        let Some(flight) = self.flights.pop_front() else { return };
        let Self { executor, output, .. } = self;
        let collected = recover::confined(|| executor.collect(&flight.guides, output));
        let now = self.clock.now();
        match collected {
            Ok(()) => {
                let busy_since = flight.launched.max(self.collected);
                let execute = now.saturating_sub(busy_since).saturating_sub(self.output.waited);
                self.executed = execute;
                self.scheduler.cost.observe(flight.plan.work, self.computing(execute));
                self.scheduler.contended = self.output.waited >= CONTENDED;
                self.commit(&flight, now);
                self.publish(&flight, execute, now);
            }
            Err(error) => self.recover(flight.step, &flight.plan, &error),
        }
        self.collected = now;
        self.hangar.push(flight);
    }

    /// What a step took to compute. Between two that are under way at once, the host's clock is no measure: a launch that takes long makes
    /// one look long and the next one short.
    fn computing(&self, execute: Duration) -> Duration {
        match self.output.device {
            Duration::ZERO => execute,
            device if self.ahead > 0 => device,
            _ => execute,
        }
    }

    fn mark_started(&mut self, slot: Slot, now: Duration) {
        let sequence = self.roster.get_mut(slot);
        if sequence.started.is_none() {
            sequence.started = Some(now);
            let (account, places) = (sequence.ticket.client.account, sequence.rows());
            self.board.queue.leave(account, places, now);
        }
    }

    /// Ends a sequence, and its followers that have not begun.
    fn finish(&mut self, slot: Slot, reason: &FinishReason, now: Duration) {
        let sequence = self.roster.remove(slot);
        self.board.queue.ended(sequence.rows(), now);
        self.speculator.forget(slot);
        if sequence.started.is_none() {
            self.board.queue.leave(sequence.ticket.client.account, sequence.rows(), now);
        }
        for ended in std::iter::once(&sequence).chain(&sequence.followers) {
            self.scheduler.depart(ended, now);
            self.record.finished += 1;
            let usage = ended.usage(reason, now);
            self.metrics.finish(ended.class(), reason, &usage);
            ended.tell(Event::Finished { sequence: ended.index, reason: reason.clone(), usage });
        }
    }
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
