//! Grammars compiled on trial, in processes that can be ended.
//!
//! llguidance counts most of its work, but not all: what it does before it begins to count can take hours and all memory,
//! and a thread cannot be stopped from outside. Therefore a grammar that this process has not seen is first compiled by a
//! worker: the same executable, with limits on its time, its memory and its stack, told nothing but the vocabulary. What
//! fits there is then compiled here, which takes as much again and no more; what does not is refused, and remembered.
//!
//! ```text
//! Compiler ─ submit ─> queue (fair between accounts) ─> one of two threads ─> worker process ─> verdict ─> Compiler
//! ```
//! A worker is kept for the next trial unless it had to be ended: after a trial that exceeds a limit, or that nobody waits for
//! any more. It ends by itself when its input is closed, so that none is left when this process is gone, however it ended.
//!
//! - `queue`: who is next. `process`: a worker from outside. `worker`, `usage`, `limits`: from inside. `wire`: between them.

mod limits;
mod process;
mod queue;
mod usage;
mod verdicts;
mod wire;
mod worker;

use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

pub(crate) use self::limits::WORKER_STACK as STACK;
use self::process::{Process, Silence};
pub use self::queue::Account;
use self::queue::{Job, Queue};
use self::verdicts::Verdicts;
use self::wire::Limit;
pub(crate) use self::wire::{Trial, Verdict};
pub use self::worker::work;
use crate::vocabulary::Words;

/// Trials at the same time. One account has one of them at most, so that nobody waits for another's longer than one takes.
const AT_ONCE: usize = 2;
const AT_ONCE_PER_ACCOUNT: usize = 1;

/// How long a worker is kept without anything to do: it holds some tens of megabytes.
const KEPT: Duration = Duration::from_secs(120);

/// What whoever waits for a trial is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The worker's verdict.
    Tried(Verdict),
    /// No verdict: too many trials wait, or no worker could be started. Another time there may be one.
    Unavailable(String),
}

impl From<Result<Verdict, Silence>> for Outcome {
    fn from(tried: Result<Verdict, Silence>) -> Self {
        match tried {
            Ok(verdict) => Self::Tried(verdict),
            Err(silence) => Self::Unavailable(silence.to_string()),
        }
    }
}

/// Worker processes, started when they are needed. Copies share them; they end with the last copy.
#[derive(Clone)]
pub struct Workers {
    owner: Arc<Owner>,
}

/// Ends the threads when nobody can submit anything any more.
struct Owner(Arc<Shared>);

struct Shared {
    launch: Box<dyn Fn() -> Command + Send + Sync>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: Queue,
    verdicts: Verdicts,
    /// Workers without anything to do, the one used last at the end.
    idle: Vec<Process>,
    threads: usize,
    closed: bool,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").finish_non_exhaustive()
    }
}

impl Workers {
    /// Workers that are started by `launch`, whose executable calls [`work`].
    pub fn new(launch: impl Fn() -> Command + Send + Sync + 'static) -> Self {
        let shared = Shared { launch: Box::new(launch), state: Mutex::default(), changed: Condvar::new() };
        Self { owner: Arc::new(Owner(Arc::new(shared))) }
    }

    /// Has a grammar tried. Whoever drops the receiver ends the trial.
    ///
    /// `hash` is the name of the grammar that it was known by before.
    pub(crate) fn submit(
        &self,
        account: Account,
        vocabulary: &Arc<Words>,
        hash: [u8; 32],
        trial: &Trial,
    ) -> oneshot::Receiver<Outcome> {
        let (reply, outcome) = oneshot::channel();
        let trial = serde_json::to_vec(trial).unwrap_or_default();
        let job = Job { account, hash, vocabulary: Arc::clone(vocabulary), trial, reply };
        let shared = &self.owner.0;
        let known = shared.lock().verdicts.get(&verdicts::Key::of(&job));
        if let Some(verdict) = known {
            let _ = job.reply.send(Outcome::Tried(verdict));
        } else if let Err(job) = shared.lock().queue.push(job) {
            let busy = "too many grammars wait to be compiled".to_owned();
            let _ = job.reply.send(Outcome::Unavailable(busy));
        } else {
            Shared::start_threads(shared);
            shared.changed.notify_all();
        }
        outcome
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked left a queue behind that is as good as before.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_threads(shared: &Arc<Shared>) {
        let mut state = shared.lock();
        while state.threads < AT_ONCE {
            let supervised = Arc::clone(shared);
            let thread = thread::Builder::new().name("grammar-trials".into());
            if thread.spawn(move || supervised.supervise()).is_err() {
                return;
            }
            state.threads += 1;
        }
    }

    /// Hands trials to workers, one at a time, until nobody is left who could submit any.
    fn supervise(&self) {
        while let Some(job) = self.next() {
            let account = job.account;
            self.attempt(job);
            self.lock().queue.done(account);
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.queue.take(AT_ONCE_PER_ACCOUNT) {
                return Some(job);
            }
            let waited = self.changed.wait_timeout(state, KEPT).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if waited.1.timed_out() {
                let unused = std::mem::take(&mut state.idle);
                drop(state);
                drop(unused);
                state = self.lock();
            }
        }
    }

    fn attempt(&self, job: Job) {
        let key = verdicts::Key::of(&job);
        let known = self.lock().verdicts.get(&key);
        let outcome = known.map_or_else(|| self.compile(&job), Outcome::Tried);
        if let Outcome::Tried(verdict) = &outcome {
            self.lock().verdicts.insert(key, verdict.clone());
        }
        // Who no longer waits need not be told.
        let _ = job.reply.send(outcome);
    }

    /// Compiles on a worker that waits, or on a new one. A worker may have ended while it had nothing to do, which is no
    /// fault of the grammar: that it is gone only counts if it was new.
    fn compile(&self, job: &Job) -> Outcome {
        if let Some(waiting) = self.idle_process(&job.vocabulary) {
            let tried = self.attempt_on(waiting, job);
            if !matches!(tried, Err(Silence::Gone) | Ok(Verdict::Exceeded(Limit::Crashed))) {
                return tried.into();
            }
        }
        match Process::start((self.launch)(), &job.vocabulary) {
            Ok(new) => self.attempt_on(new, job).into(),
            Err(error) => Outcome::Unavailable(format!("no worker could be started: {error}")),
        }
    }

    fn attempt_on(&self, mut process: Process, job: &Job) -> Result<Verdict, Silence> {
        let verdict = process.attempt(job)?;
        if process.is_as_before(&verdict) {
            self.keep(process);
        }
        Ok(verdict)
    }

    /// A worker for a vocabulary that waits.
    fn idle_process(&self, vocabulary: &Arc<Words>) -> Option<Process> {
        let mut state = self.lock();
        let index = state.idle.iter().rposition(|process| process.is_for(vocabulary))?;
        Some(state.idle.remove(index))
    }

    /// Keeps a worker for the next trial; the one that was not used for longest makes way.
    fn keep(&self, process: Process) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        state.idle.push(process);
        let surplus = (state.idle.len() > AT_ONCE).then(|| state.idle.remove(0));
        drop(state);
        drop(surplus);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let idle = {
            let mut state = self.0.lock();
            state.closed = true;
            std::mem::take(&mut state.idle)
        };
        self.0.changed.notify_all();
        drop(idle);
    }
}
