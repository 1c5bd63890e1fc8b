//! Brings one large file here over several connections at once, and goes on where it was stopped.
//!
//! ```text
//! this thread     plan pieces -> start workers -> report and note how far they are -> give the file its name
//! each worker     take a piece -> ask for what is missing of it -> write it to its place; again if the connection breaks
//! ```
//! Relies on `journal` for what survives the end of the program, and on its caller for the checksum and for a lock on the file.
//! Must never: name a file that is not whole, or trust a server to send the bytes it was asked for.

mod journal;
mod worker;

use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use self::journal::{Journal, Pieces};
use super::http::Client;
use crate::config::Transfers;
use crate::error::SourceError;
use crate::progress::{Progress, Report, Stage};

/// How often progress is noted: what is lost when the program is killed is what came since.
const NOTE_EVERY: Duration = Duration::from_millis(250);

/// How often progress is looked at while nothing is heard of the workers.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A file to bring here.
pub(crate) struct Transfer<'a> {
    pub client: &'a Client,
    pub url: &'a str,
    /// The file's name, for reports.
    pub name: &'a str,
    pub size: u64,
    /// Where it goes.
    pub target: &'a Path,
    pub how: Transfers,
}

/// What the workers share.
struct Shared<'a> {
    transfer: &'a Transfer<'a>,
    journal: Journal,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    pieces: Pieces,
    /// The next piece that nobody has taken.
    next: usize,
    /// How many workers are at it.
    running: usize,
    /// Why the transfer fails; once set, everybody stops.
    trouble: Option<Trouble>,
}

/// Why pieces can't be had.
enum Trouble {
    /// The server sends the whole file, or nothing, when asked for a part.
    NoRanges,
    Failed(SourceError),
}

/// Bytes of the file that an earlier attempt left.
pub(crate) fn bytes_here(target: &Path, size: u64) -> u64 {
    Journal::beside(target).find(size).map_or(0, |pieces| pieces.bytes())
}

/// Whether a file that is whole was brought by a transfer that nobody has settled yet.
pub(crate) fn is_unsettled(target: &Path) -> bool {
    Journal::beside(target).is_noted()
}

/// Takes away what a transfer noted, once its file was checked.
pub(crate) fn settle(target: &Path) {
    Journal::beside(target).forget();
}

impl Transfer<'_> {
    /// Brings what is missing, and gives the file its name.
    pub(crate) fn run(&self, report: Report<'_>) -> Result<(), SourceError> {
        let journal = Journal::beside(self.target);
        let pieces = match journal.find(self.size) {
            Some(pieces) => pieces,
            None => journal.begin(Pieces::new(self.size, self.how.piece))?,
        };
        match self.bring(pieces, report) {
            Err(Trouble::NoRanges) => {
                let pieces = journal.begin(Pieces::whole(self.size))?;
                self.bring(pieces, report).map_err(|trouble| match trouble {
                    Trouble::Failed(error) => error,
                    Trouble::NoRanges => SourceError::NoSuchRange,
                })?;
            }
            Err(Trouble::Failed(error)) => return Err(error),
            Ok(()) => {}
        }
        journal.finish(self.target)
    }

    fn bring(&self, pieces: Pieces, report: Report<'_>) -> Result<(), Trouble> {
        let workers = self.how.connections.clamp(1, pieces.count().max(1));
        let state = Mutex::new(State { pieces, next: 0, running: workers, trouble: None });
        let journal = Journal::beside(self.target);
        let shared = Shared { transfer: self, journal, state, changed: Condvar::new() };
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| shared.work());
            }
            shared.watch(report);
        });
        let state = shared.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        shared.journal.save(&state.pieces).map_err(Trouble::Failed)?;
        state.trouble.map_or(Ok(()), Err)
    }
}

impl Shared<'_> {
    /// Tells and notes how far the workers are, until the last has ended.
    fn watch(&self, report: Report<'_>) {
        let mut noted = Instant::now();
        let mut told = None;
        let mut state = self.state();
        loop {
            let pieces = state.pieces.clone();
            let is_over = state.running == 0;
            drop(state);
            let done = pieces.bytes();
            if told.replace(done) != Some(done) {
                let (file, total) = (self.transfer.name, self.transfer.size);
                report(Progress::Bytes { stage: Stage::Download, file, done, total });
            }
            if is_over {
                return;
            }
            if noted.elapsed() >= NOTE_EVERY {
                noted = Instant::now();
                if let Err(error) = self.journal.save(&pieces) {
                    self.fail(Trouble::Failed(error));
                }
            }
            let waiting = self.changed.wait_timeout_while(self.state(), LOOK_EVERY, |state| {
                state.running > 0 && state.pieces.bytes() == done
            });
            state = waiting.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Stops everybody; the first reason counts.
    fn fail(&self, trouble: Trouble) {
        self.state().trouble.get_or_insert(trouble);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
