//! One worker process, as the process that started it sees it. Dropping it ends it.

use std::io::{self, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::queue::Job;
use super::wire::{self, Limit, Verdict};
use super::{limits, usage};
use crate::vocabulary::Words;

/// How often it is looked whether anybody still waits for the verdict.
const LOOK: Duration = Duration::from_millis(10);

/// A worker that waits for trials.
pub(super) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    /// What it writes; closed when it is gone.
    output: Receiver<Vec<u8>>,
    vocabulary: Arc<Words>,
    /// Processor time that it had spent before its trial.
    spent: Duration,
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub(super) enum Silence {
    /// Nobody waits for it any more.
    #[error("nobody waits for it")]
    Cancelled,
    /// It had no processor for most of its time.
    #[error("the machine is too busy to compile it")]
    Starved,
    /// The worker ended.
    #[error("the worker ended")]
    Gone,
}

impl Process {
    /// Starts a worker for a vocabulary, and waits until it is ready.
    pub(super) fn start(mut command: Command, vocabulary: &Arc<Words>) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Whoever presses Ctrl-C means the server, which ends its workers when it is done.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let output = frames(&mut child)?;
        let mut process =
            Self { child, input, output, vocabulary: Arc::clone(vocabulary), spent: Duration::ZERO };
        process.send(&vocabulary.to_bytes())?;
        let ready = process.output.recv_timeout(limits::START);
        ready
            .map(|_| process)
            .map_err(|_| io::Error::other("the worker that compiles grammars did not start"))
    }

    /// Whether it compiles for this vocabulary.
    pub(super) fn is_for(&self, vocabulary: &Arc<Words>) -> bool {
        self.vocabulary.digest() == vocabulary.digest()
    }

    /// Whether the next trial finds it as this one did: it ended in time, at its full priority and without growing much.
    pub(super) fn is_as_before(&self, verdict: &Verdict) -> bool {
        let spent = usage::time_of(self.child.id()).unwrap_or_default().saturating_sub(self.spent);
        match verdict {
            Verdict::Fits { memory, .. } => spent < limits::SUSPICIOUS && *memory < limits::GROWTH / 4,
            Verdict::Refused { .. } => spent < limits::SUSPICIOUS,
            Verdict::Exceeded(_) => false,
        }
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        wire::write(input, frame)
    }

    /// Has a grammar compiled. After anything but a verdict that it fits or is refused, the worker is of no more use.
    pub(super) fn attempt(&mut self, job: &Job) -> Result<Verdict, Silence> {
        self.spent = usage::time_of(self.child.id()).unwrap_or_default();
        self.send(&job.trial).map_err(|_| Silence::Gone)?;
        let until = Instant::now() + limits::PATIENCE;
        loop {
            match self.output.recv_timeout(LOOK) {
                Ok(frame) => return serde_json::from_slice(&frame).map_err(|_| Silence::Gone),
                Err(RecvTimeoutError::Disconnected) => return Ok(Verdict::Exceeded(Limit::Crashed)),
                Err(RecvTimeoutError::Timeout) if job.is_cancelled() => return Err(Silence::Cancelled),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= until => return self.late(),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// Processor time of which it is known that a grammar of practical use would have been compiled.
const ENOUGH: Duration = Duration::from_millis(100);

impl Process {
    /// What to make of a trial that is not done in time.
    fn late(&self) -> Result<Verdict, Silence> {
        let worked = usage::time_of(self.child.id()).is_none_or(|time| time >= self.spent + ENOUGH);
        if worked { Ok(Verdict::Exceeded(Limit::Time)) } else { Err(Silence::Starved) }
    }
}

/// What a worker writes, read by a thread of its own that ends with it.
fn frames(child: &mut Child) -> io::Result<Receiver<Vec<u8>>> {
    let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let (sender, frames) = channel();
    thread::Builder::new().name("grammar-verdicts".into()).spawn(move || {
        let mut output = BufReader::new(output);
        while let Ok(frame) = wire::read(&mut output) {
            if sender.send(frame).is_err() {
                break;
            }
        }
    })?;
    Ok(frames)
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already. Without the second call it would stay in the system's table of processes.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
