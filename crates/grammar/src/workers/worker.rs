//! The process that compiles grammars on trial. It holds itself to its limits, and ends with whoever started it.
//!
//! ```text
//! main thread     reads trials; at the end of its input the process ends, whatever the others do
//! compiling       one trial after another
//! watch           looks at what the trial has used; beyond a limit it says so and ends the process
//! ```

use std::io::{self, stdin, stdout};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::exit;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use llguidance::ParserFactory;

use super::usage::ThreadName;
use super::wire::{self, Limit, Trial, Verdict};
use super::{limits, usage};
use crate::parsers::{compile, factory};
use crate::vocabulary::{Vocabulary, Words};

/// Compiles the grammars that come in on standard input, until it ends. What an executable calls that [`Workers`](super::Workers)
/// starts.
pub fn work() -> io::Result<()> {
    usage::restrict();
    let mut input = stdin().lock();
    let words = Words::from_bytes(&wire::read(&mut input)?).ok_or(io::ErrorKind::InvalidData)?;
    let (trials, waiting) = sync_channel::<Vec<u8>>(1);
    let current = Arc::new(Current::default());
    let watched = Arc::clone(&current);
    thread::Builder::new().spawn(move || watch(&watched))?;
    thread::Builder::new().stack_size(limits::WORKER_STACK).spawn(move || {
        // Whoever waits for a verdict must not wait for a thread that is gone.
        let _ = catch_unwind(AssertUnwindSafe(|| serve(&words, &waiting, &current)));
        exit(1)
    })?;
    relay(&mut input, &trials)
}

fn relay(input: &mut impl io::Read, trials: &SyncSender<Vec<u8>>) -> io::Result<()> {
    while let Ok(trial) = wire::read(input) {
        trials.send(trial).map_err(|_| io::ErrorKind::BrokenPipe)?;
    }
    exit(0)
}

/// What the process had used when it began with a trial.
#[derive(Clone, Copy)]
struct Began {
    thread: ThreadName,
    time: Duration,
    memory: usize,
}

/// The trial that is compiled at the moment. Whoever holds the lock may answer, so that there is one answer only.
#[derive(Default)]
struct Current {
    began: Mutex<Option<Began>>,
    changed: Condvar,
}

impl Current {
    fn lock(&self) -> MutexGuard<'_, Option<Began>> {
        self.began.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> Began {
        usage::restrict_time();
        let began = Began { thread: ThreadName::own(), time: usage::time(), memory: usage::memory() };
        *self.lock() = Some(began);
        self.changed.notify_all();
        began
    }
}

fn serve(words: &Words, waiting: &Receiver<Vec<u8>>, current: &Current) {
    let factory = factory(Vocabulary::new(words, None));
    let ready = wire::write(&mut stdout().lock(), &[]);
    if ready.is_err() {
        exit(1);
    }
    while let Ok(bytes) = waiting.recv() {
        let began = current.begin();
        let outcome = attempt(factory.as_ref(), &bytes);
        let mut current = current.lock();
        *current = None;
        answer(&began.verdict(outcome));
    }
}

fn attempt(factory: Result<&ParserFactory, &String>, bytes: &[u8]) -> Result<(), String> {
    let trial: Trial = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let factory = factory.map_err(Clone::clone)?;
    let grammar = trial.spec.grammar(trial.reasoning.as_ref()).map_err(|error| error.to_string())?;
    compile(factory, grammar).map(drop)
}

impl Began {
    /// Processor time since then.
    fn time(self) -> Duration {
        usage::time().saturating_sub(self.time)
    }

    /// Growth since then.
    fn memory(self) -> usize {
        usage::memory().saturating_sub(self.memory)
    }

    /// What is over its limit, if anything is.
    fn exceeded(self) -> Option<Limit> {
        if self.time() > limits::TIME {
            return Some(Limit::Time);
        }
        (self.memory() > limits::GROWTH).then_some(Limit::Memory)
    }

    fn verdict(self, outcome: Result<(), String>) -> Verdict {
        match (outcome, self.exceeded()) {
            (Err(reason), _) => Verdict::Refused { reason },
            (Ok(()), Some(limit)) => Verdict::Exceeded(limit),
            (Ok(()), None) => Verdict::Fits { time: self.time(), memory: self.memory() },
        }
    }
}

fn watch(current: &Current) {
    loop {
        let began = current.changed.wait_while(current.lock(), |began| began.is_none());
        drop(began.unwrap_or_else(PoisonError::into_inner));
        thread::sleep(limits::LOOK);
        let current = current.lock();
        let Some(began) = *current else { continue };
        if let Some(limit) = began.exceeded() {
            answer(&Verdict::Exceeded(limit));
            exit(0);
        }
        if began.time() > limits::SUSPICIOUS {
            began.thread.give_way();
        }
    }
}

fn answer(verdict: &Verdict) {
    let bytes = serde_json::to_vec(verdict).unwrap_or_default();
    if wire::write(&mut stdout().lock(), &bytes).is_err() {
        exit(1);
    }
}
