//! A [`Collector`], its lock, and the thread that works.
//!
//! The lock is held to put a job in and to take a batch out, never while anything is computed. A job whose [`Answer`] was
//! dropped is not computed if it still waits. If a batch panics, its jobs are run one by one, so that only the culprit
//! fails.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::collector::{Collector, Decision, Load, Settings, Taken};
use crate::record::{BatchRecord, Totals};

/// Computes batches, on a thread of its own.
pub trait Worker<J, O>: Send {
    /// One result per job, in their order.
    fn run(&mut self, jobs: &[J]) -> Vec<O>;

    /// How long the runs since the last call waited for hardware that is shared with others.
    fn take_wait(&mut self) -> Duration {
        Duration::ZERO
    }
}

impl<J, O, F: FnMut(&[J]) -> Vec<O> + Send> Worker<J, O> for F {
    fn run(&mut self, jobs: &[J]) -> Vec<O> {
        self(jobs)
    }
}

/// Why a job was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// As many wait as may.
    #[error("{waiting} requests wait already; try again in a moment")]
    Full {
        /// How many.
        waiting: usize,
    },
    /// The service is shutting down.
    #[error("the service is shutting down")]
    Stopped,
}

/// Why a job that was taken in has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// A bug: computing it panicked.
    #[error("computing it failed on a bug of Ropeway; please report the message in its log")]
    Panicked,
    /// The service stopped first.
    #[error("the service stopped before it was computed")]
    Stopped,
}

/// A result to come. Await it, or [`wait`](Self::wait) on a thread; dropping it cancels the job.
#[derive(Debug)]
pub struct Answer<O>(oneshot::Receiver<Result<O, Failed>>);

impl<O> Answer<O> {
    /// Blocks until the result is there. Not for threads of an async runtime.
    pub fn wait(self) -> Result<O, Failed> {
        self.0.blocking_recv().unwrap_or(Err(Failed::Stopped))
    }
}

impl<O> Future for Answer<O> {
    type Output = Result<O, Failed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|result| result.unwrap_or(Err(Failed::Stopped)))
    }
}

struct Ticket<J, O> {
    job: J,
    answer: oneshot::Sender<Result<O, Failed>>,
}

/// Records kept for whoever looks: about the last seconds of a busy service.
const KEPT_RECORDS: usize = 256;

struct State<J, O> {
    collector: Collector<Ticket<J, O>>,
    totals: Totals,
    records: VecDeque<BatchRecord>,
    stopped: bool,
}

struct Shared<J, O> {
    state: Mutex<State<J, O>>,
    came: Condvar,
    start: Instant,
}

impl<J, O> Shared<J, O> {
    /// The state is consistent between statements, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, State<J, O>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.came.notify_one();
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A batching service. Dropping it stops it: what is being computed is finished, what waits is not.
pub struct Batcher<J, O> {
    shared: Arc<Shared<J, O>>,
    thread: Option<JoinHandle<()>>,
}

impl<J: Send + 'static, O: Send + 'static> Batcher<J, O> {
    /// Starts the worker's thread under this name.
    pub fn spawn(name: &str, settings: Settings, worker: impl Worker<J, O> + 'static) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                collector: Collector::new(settings),
                totals: Totals::default(),
                records: VecDeque::with_capacity(KEPT_RECORDS),
                stopped: false,
            }),
            came: Condvar::new(),
            start: Instant::now(),
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&theirs, worker));
        Self { shared, thread: Some(thread.expect("the system refuses another thread")) }
    }

    /// Puts a job in the queue.
    pub fn submit(&self, job: J, load: Load) -> Result<Answer<O>, Rejected> {
        let (answer, receiver) = oneshot::channel();
        let now = self.shared.now();
        let mut state = self.shared.lock();
        if state.stopped {
            return Err(Rejected::Stopped);
        }
        if state.collector.push(Ticket { job, answer }, load, now).is_err() {
            state.totals.rejected += 1;
            return Err(Rejected::Full { waiting: state.collector.len() });
        }
        drop(state);
        self.shared.came.notify_one();
        Ok(Answer(receiver))
    }

    /// Stops the service once what is being computed is finished; what waits fails.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Everything so far.
    pub fn totals(&self) -> Totals {
        let state = self.shared.lock();
        Totals { waiting: state.collector.len(), ..state.totals }
    }

    /// The records after number `batch`, as far as they are kept, oldest first.
    pub fn records_after(&self, batch: u64) -> Vec<BatchRecord> {
        self.shared.lock().records.iter().filter(|record| record.batch > batch).copied().collect()
    }
}

impl<J, O> Drop for Batcher<J, O> {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work<J, O>(shared: &Shared<J, O>, mut worker: impl Worker<J, O>) {
    while let Some((taken, left_at)) = next_batch(shared) {
        let record = run(&mut worker, taken, left_at);
        let (now, wait) = (shared.now(), worker.take_wait());
        let mut state = shared.lock();
        state.collector.finished(now);
        let took = now.saturating_sub(left_at).saturating_sub(wait);
        let record = BatchRecord { batch: state.totals.batches + 1, shared: wait, took, ..record };
        state.totals.add(&record);
        if state.records.len() == KEPT_RECORDS {
            state.records.pop_front();
        }
        state.records.push_back(record);
    }
}

/// Waits until a batch is to leave; `None` once the service stopped.
fn next_batch<J, O>(shared: &Shared<J, O>) -> Option<(Taken<Ticket<J, O>>, Duration)> {
    let mut state = shared.lock();
    loop {
        if state.stopped {
            // Their answers hear of it when the tickets are dropped.
            state.collector.drop_where(|_| true);
            return None;
        }
        let gone = state.collector.drop_where(|ticket| ticket.answer.is_closed());
        state.totals.cancelled += gone as u64;
        let now = shared.now();
        match state.collector.decide(now) {
            Decision::Leave => return Some((state.collector.take(now), now)),
            Decision::Idle => state = shared.came.wait(state).unwrap_or_else(PoisonError::into_inner),
            Decision::WaitUntil(until) => {
                let time = until.saturating_sub(now);
                state = shared.came.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

fn run<J, O>(worker: &mut impl Worker<J, O>, taken: Taken<Ticket<J, O>>, now: Duration) -> BatchRecord {
    let oldest = taken.jobs.iter().map(|(_, _, arrived)| *arrived).min().unwrap_or(now);
    let mut record = BatchRecord {
        at: now,
        size: taken.jobs.len(),
        tokens: taken.jobs.iter().map(|(_, load, _)| load.tokens).sum(),
        window: taken.held,
        waited: now.saturating_sub(oldest),
        left: taken.left,
        ..BatchRecord::default()
    };
    let (jobs, answers): (Vec<J>, Vec<_>) =
        taken.jobs.into_iter().map(|(ticket, _, _)| (ticket.job, ticket.answer)).unzip();
    for (answer, result) in answers.into_iter().zip(results(worker, &jobs)) {
        record.failed += usize::from(result.is_err());
        // Nobody may be there any more.
        let _ = answer.send(result);
    }
    record
}

/// One result per job; if computing them together panics, each is computed alone.
fn results<J, O>(worker: &mut impl Worker<J, O>, jobs: &[J]) -> Vec<Result<O, Failed>> {
    let mut attempt = |jobs: &[J]| {
        let outputs = catch_unwind(AssertUnwindSafe(|| worker.run(jobs))).ok();
        outputs.filter(|outputs| outputs.len() == jobs.len())
    };
    match attempt(jobs) {
        Some(outputs) => outputs.into_iter().map(Ok).collect(),
        None if jobs.len() == 1 => vec![Err(Failed::Panicked)],
        None => {
            let alone = |job| attempt(std::slice::from_ref(job)).and_then(|mut outputs| outputs.pop());
            jobs.iter().map(alone).map(|output| output.ok_or(Failed::Panicked)).collect()
        }
    }
}
