//! One model's way to its upstreams: the dispatcher behind a lock, who waits for its word, and the members it chooses from.
//!
//! ```text
//! board ─> Boarding ─ placed ─> Placement{member} ─ attempt ─> end      dropped: withdrawn, wherever it is
//!              ^                                       │
//!              └────────────── again ──────────────────┘  the attempt failed: elsewhere, if the budget allows
//! ```
//! The lock is held for the microseconds of a decision, never while anything is awaited.

mod timekeeper;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ropeway_engine::{Load, Rejected};
use ropeway_generation::{ErrorKind, RequestError};
use tokio::sync::{Notify, oneshot};

use crate::dispatch::{
    Ask, Assignment, Capacity, Dispatcher, Ended, Probe, QueueFull, Settings, Spent, Ticket, UpstreamId,
    UpstreamStatus,
};
use crate::error::UpstreamError;
use crate::upstream::{OfferedModel, Upstream};

/// How long requests wait for an upstream to come back when none is up: a server that restarts within it loses nobody.
const PATIENCE: Duration = Duration::from_secs(10);

/// What clients are told when no upstream is up. Which ones, and why, is for operators.
pub(crate) const NOBODY_THERE: &str = "none of the servers of this model can be reached";

/// How long a request goes on while all it hears is that upstreams are busy: from then on that counts as failing.
const BUSY_PATIENCE: Duration = Duration::from_secs(60);

/// When to come back to a model none of whose upstreams can be reached: they are probed more often than that.
const COME_BACK: Duration = Duration::from_secs(5);

/// The context of upstreams that do not tell theirs: they turn down what is too long themselves.
const UNKNOWN_CONTEXT: usize = 1 << 20;

/// Tokens of an answer before any is known.
const FIRST_GUESS: f64 = 256.0;

/// Weight of the latest answer in the mean length of answers.
const LATEST: f64 = 0.05;

/// An upstream as one of a model's.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its number in the dispatcher.
    pub id: UpstreamId,
    /// The server.
    pub upstream: Upstream,
    /// The model as this server calls it.
    pub model: OfferedModel,
}

/// Where a request was placed.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Who computes it.
    pub member: Arc<Member>,
}

/// No upstream took the request in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// It waited longer than it may.
    Overdue,
    /// None is up, and none came back for a while.
    NobodyThere,
}

/// One model's queue and upstreams.
#[derive(Debug)]
pub struct Lane {
    model: Arc<str>,
    state: Mutex<State>,
    /// Told whenever the time of the next thing to do may have changed.
    changed: Arc<Notify>,
    /// Tokens of prompt and answer together at the member that has room for the fewest.
    context: AtomicUsize,
    began: Instant,
}

#[derive(Debug)]
struct State {
    dispatcher: Dispatcher,
    members: HashMap<UpstreamId, Arc<Member>>,
    /// Who waits for a place.
    waiting: HashMap<Ticket, oneshot::Sender<Result<Placement, Missed>>>,
    /// Mean tokens of an answer.
    answer: f64,
    /// Since when no member is up.
    deserted: Option<Duration>,
    /// What was last said about a member that failed.
    last_error: String,
}

impl Lane {
    /// A model without upstreams yet, whose queue holds so many requests. Must be called within a runtime.
    pub fn start(model: &str, settings: &Settings) -> Arc<Self> {
        let state = State {
            dispatcher: Dispatcher::new(settings),
            members: HashMap::new(),
            waiting: HashMap::new(),
            answer: FIRST_GUESS,
            deserted: Some(Duration::ZERO),
            last_error: "no upstream has it".into(),
        };
        let lane = Arc::new(Self {
            model: model.into(),
            state: Mutex::new(state),
            changed: Arc::default(),
            context: AtomicUsize::new(UNKNOWN_CONTEXT),
            began: Instant::now(),
        });
        tokio::spawn(timekeeper::keep(Arc::downgrade(&lane), Arc::clone(&lane.changed)));
        lane
    }

    /// The model's name.
    pub fn model(&self) -> &Arc<str> {
        &self.model
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked; were it to, every request is still either waiting or placed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// One more upstream has the model.
    pub fn join(&self, upstream: Upstream, model: OfferedModel) -> UpstreamId {
        let settings = upstream.settings();
        let capacity = Capacity { weight: settings.weight, concurrency: settings.concurrency };
        let mut state = self.state();
        let id = state.dispatcher.add(capacity);
        state.members.insert(id, Arc::new(Member { id, upstream, model }));
        self.note_context(&state);
        self.settle(&mut state);
        id
    }

    /// An upstream has it no longer. What runs there fails by itself.
    pub fn leave(&self, id: UpstreamId) {
        let mut state = self.state();
        state.dispatcher.remove(id);
        state.members.remove(&id);
        self.note_context(&state);
        self.settle(&mut state);
    }

    /// Every request must fit wherever it is placed or goes on, so the smallest context counts.
    fn note_context(&self, state: &State) {
        let smallest = state.members.values().filter_map(|member| member.model.context).min();
        self.context.store(smallest.unwrap_or(UNKNOWN_CONTEXT), Ordering::Relaxed);
    }

    /// Tokens that prompt and answer may have together.
    pub fn context(&self) -> usize {
        self.context.load(Ordering::Relaxed)
    }

    /// The upstreams that have it.
    pub fn members(&self) -> Vec<Arc<Member>> {
        let mut members: Vec<_> = self.state().members.values().cloned().collect();
        members.sort_by_key(|member| member.id);
        members
    }

    /// What a probe found out.
    pub fn probed(&self, id: UpstreamId, probe: Probe, why: Option<String>) {
        let mut state = self.state();
        if let Some(why) = why {
            state.last_error = why;
        }
        state.dispatcher.probed(id, probe, self.now());
        self.settle(&mut state);
    }

    /// A request waits for a place. `None` for `answer_tokens` expects what answers had lately.
    pub fn board(self: &Arc<Self>, mut ask: Ask, answer_tokens: Option<usize>) -> Result<Boarding, Refusal> {
        let now = self.now();
        let mut state = self.state();
        if state.is_deserted(now) {
            return Err(Refusal::NobodyThere);
        }
        let usual = state.answer as usize;
        ask.answer_tokens = answer_tokens.map_or(usual, |most| most.min(usual));
        let ticket = state.dispatcher.enqueue(ask, now).map_err(Refusal::Full)?;
        let (call, placed) = oneshot::channel();
        state.waiting.insert(ticket, call);
        self.settle(&mut state);
        Ok(Boarding { lane: Arc::clone(self), ticket, placed, tokens: 0, busy_since: None, is_open: true })
    }

    /// What is waiting and running.
    pub fn load(&self) -> Load {
        let state = self.state();
        Load { queued: state.dispatcher.waiting(), running: state.dispatcher.running() }
    }

    /// Time after which a request that found no place may find one.
    pub fn queue_wait(&self) -> Duration {
        self.state().dispatcher.queue_wait(self.now())
    }

    /// Each member and how it does.
    pub fn statuses(&self) -> Vec<(Arc<Member>, UpstreamStatus)> {
        let state = self.state();
        let statuses = state.dispatcher.statuses().into_iter();
        statuses
            .filter_map(|status| Some((Arc::clone(state.members.get(&status.upstream)?), status)))
            .collect()
    }

    /// What was last said about a member that failed, if none is up.
    pub fn outage(&self) -> Option<String> {
        let state = self.state();
        state.deserted.map(|_| state.last_error.clone())
    }

    /// Hands out what can be handed out, after every change.
    fn settle(&self, state: &mut State) {
        state.hand_out(self.now());
        self.changed.notify_one();
    }
}

impl State {
    fn hand_out(&mut self, now: Duration) {
        while let Some(Assignment { ticket, upstream, .. }) = self.dispatcher.next(now) {
            let member = self.members.get(&upstream).cloned();
            let call = self.waiting.remove(&ticket);
            let told = member.zip(call).map(|(member, call)| call.send(Ok(Placement { member })));
            if !matches!(told, Some(Ok(()))) {
                self.dispatcher.withdraw(ticket, now);
            }
        }
        self.note_desertion(now);
    }

    fn note_desertion(&mut self, now: Duration) {
        let is_up = self.dispatcher.statuses().iter().any(|status| status.is_up || status.is_resting);
        self.deserted = if is_up { None } else { self.deserted.or(Some(now)) };
    }

    /// Whether nobody can be served, and it was waited long enough for that to change.
    fn is_deserted(&self, now: Duration) -> bool {
        self.deserted.is_some_and(|since| now.saturating_sub(since) >= PATIENCE || self.members.is_empty())
    }
}

impl From<Refusal> for Rejected {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Full(full) => {
                Rejected::QueueFull { waiting: full.waiting, retry_after: full.retry_after }
            }
            Refusal::NobodyThere => {
                Rejected::Unavailable { why: NOBODY_THERE.into(), retry_after: COME_BACK }
            }
        }
    }
}

impl From<Refusal> for RequestError {
    fn from(refusal: Refusal) -> Self {
        Rejected::from(refusal).into()
    }
}

/// Why a request did not even wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As many wait as may.
    Full(QueueFull),
    /// None is up, and none came back for a while.
    NobodyThere,
}

/// A request on its way to an upstream, or at one. Dropping it withdraws it.
#[derive(Debug)]
pub struct Boarding {
    lane: Arc<Lane>,
    ticket: Ticket,
    placed: oneshot::Receiver<Result<Placement, Missed>>,
    tokens: usize,
    /// Since when upstreams said nothing but that they are busy.
    busy_since: Option<Instant>,
    is_open: bool,
}

impl Boarding {
    /// Waits for a place.
    pub async fn placed(&mut self) -> Result<Placement, Missed> {
        let placed = (&mut self.placed).await.unwrap_or(Err(Missed::Overdue));
        if placed.is_err() {
            self.is_open = false;
        }
        placed
    }

    /// The upstream gave so many tokens.
    pub fn tokens(&mut self, tokens: usize) {
        let lane = Arc::clone(&self.lane);
        let (mut state, now) = (lane.state(), lane.now());
        if self.tokens == 0 {
            state.dispatcher.first_token(self.ticket, now);
        }
        self.tokens += tokens;
        state.dispatcher.tokens(self.ticket, tokens, now);
    }

    /// The attempt failed: it waits for another place, in front.
    pub fn again(&mut self, how: Ended, why: String) -> Result<(), Spent> {
        let how = self.judged(how);
        let lane = Arc::clone(&self.lane);
        let mut state = lane.state();
        state.last_error = why;
        let requeued = state.dispatcher.requeue(self.ticket, how, lane.now());
        if requeued.is_ok() {
            let (call, placed) = oneshot::channel();
            state.waiting.insert(self.ticket, call);
            self.placed = placed;
        } else {
            self.is_open = false;
        }
        lane.settle(&mut state);
        requeued
    }

    /// Being busy for too long is failing.
    fn judged(&mut self, how: Ended) -> Ended {
        if !matches!(how, Ended::Busy { .. }) {
            self.busy_since = None;
            return how;
        }
        let since = *self.busy_since.get_or_insert_with(Instant::now);
        if since.elapsed() < BUSY_PATIENCE { how } else { Ended::Failed }
    }

    /// It is over.
    pub fn end(mut self, how: Ended) {
        self.is_open = false;
        let mut state = self.lane.state();
        if how == Ended::Done {
            state.answer += LATEST * (self.tokens as f64 - state.answer);
        }
        state.dispatcher.ended(self.ticket, how, self.lane.now());
        self.lane.settle(&mut state);
    }
}

impl Drop for Boarding {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        let mut state = self.lane.state();
        state.waiting.remove(&self.ticket);
        state.dispatcher.withdraw(self.ticket, self.lane.now());
        self.lane.settle(&mut state);
    }
}

/// What a failure says about the upstream.
pub fn how_it_ended(error: &UpstreamError) -> Ended {
    match error {
        UpstreamError::Busy { retry_after, .. } => Ended::Busy { retry_after: *retry_after },
        _ => Ended::Failed,
    }
}

/// A request that found no place, in words.
pub(crate) fn missed_place(missed: Missed) -> RequestError {
    match missed {
        Missed::Overdue => RequestError::new(
            ErrorKind::QueueTimeout,
            "the server has too much to do: the request waited longer than it may; try again later",
        ),
        Missed::NobodyThere => overloaded(NOBODY_THERE.into()),
    }
}

/// A failure that may be over later.
pub(crate) fn overloaded(why: String) -> RequestError {
    RequestError::new(ErrorKind::Overloaded, why)
}

/// A request that took too long.
pub(crate) fn timed_out() -> RequestError {
    RequestError::new(
        ErrorKind::Timeout,
        "the request took longer than it may; ask for less, or try again later",
    )
}
