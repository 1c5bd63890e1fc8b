//! Keeps a bounded number of prompts and texts in the models until the input is used up.
//!
//! One thread does it all: every request has a bell ([`Wake`]) that puts its place into one channel when events are
//! there for it. What is in flight, and what waits for its turn to be written, is bounded together.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::error::LineError;
use super::flight::{Flight, Landed};
use super::input::{Input, Numbered};
use super::line::Line;
use super::models::Models;
use super::result;
use super::results::Results;
use crate::failure::Failure;
use crate::interrupt;

/// Prompts and texts in the models: as many as a step has tokens, for no more can run together.
pub const IN_FLIGHT: usize = 512;

/// How often Ctrl-C and the progress are looked at while nothing arrives.
const GLANCE: Duration = Duration::from_millis(100);

/// A place among the requests of this run, from 0.
type Place = u64;

/// Everything about a run.
pub struct Driver {
    models: Models,
    results: Results,
    /// Ids of this run, to tell repeated ones.
    seen: HashSet<String>,
    flights: HashMap<Place, Named>,
    /// Prompts and texts of all flights.
    weight: usize,
    next: Place,
    bell: Sender<Place>,
    rung: Receiver<Place>,
    tally: Tally,
    bar: ProgressBar,
}

/// A line in the models.
struct Named {
    /// What its answer is known by.
    id: String,
    /// Prompts and texts that it began with.
    weight: usize,
    flight: Flight,
}

/// How a run went.
#[derive(Debug)]
pub struct Tally {
    start: Instant,
    answered: u64,
    skipped: u64,
    generated: u64,
    /// Lines that got an error.
    pub failed: u64,
    /// Whether somebody stopped it.
    pub interrupted: bool,
}

/// Rings when a request has events.
struct Bell {
    place: Place,
    ring: Sender<Place>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // Nobody listens any more once the run is over.
        let _ = self.ring.send(self.place);
    }
}

impl Driver {
    pub fn new(models: Models, results: Results) -> Driver {
        let (bell, rung) = channel();
        Driver {
            models,
            results,
            seen: HashSet::new(),
            flights: HashMap::new(),
            weight: 0,
            next: 0,
            bell,
            rung,
            tally: Tally::start(),
            bar: ProgressBar::hidden(),
        }
    }

    /// Answers every line that has no answer yet, or stops when told to.
    pub fn run(mut self, mut input: Input) -> Result<Tally, Failure> {
        self.bar = progress(input.lines());
        let mut more = true;
        while more || !self.flights.is_empty() {
            if interrupt::flag().load(Ordering::Relaxed) {
                self.tally.interrupted = true;
                break;
            }
            while more && self.weight + self.results.held() < IN_FLIGHT {
                match input.next_line()? {
                    Some(line) => self.begin(line)?,
                    None => more = false,
                }
            }
            if let Ok(place) = self.rung.recv_timeout(GLANCE) {
                self.advance(place)?;
            }
            self.show();
        }
        self.bar.finish_and_clear();
        self.results.sync()?;
        Ok(self.tally)
    }

    fn begin(&mut self, Numbered { number, text }: Numbered) -> Result<(), Failure> {
        let Line { id, ask } = Line::read(number, text);
        if self.results.has(&id) {
            self.tally.skipped += 1;
            return Ok(());
        }
        let place = self.next;
        self.next += 1;
        if !self.seen.insert(id.clone()) {
            let error = LineError::Duplicate(id.clone());
            return self.fail(place, &id, error);
        }
        let submitted = ask.and_then(|ask| Ok(Flight::submit(&id, number, ask, &self.models)?));
        match submitted {
            Err(error) => self.fail(place, &id, error),
            Ok(flight) => {
                let weight = flight.weight();
                self.weight += weight;
                self.flights.insert(place, Named { id, weight, flight });
                self.advance(place)
            }
        }
    }

    /// Takes what has arrived for a request.
    fn advance(&mut self, place: Place) -> Result<(), Failure> {
        let Some(named) = self.flights.get_mut(&place) else { return Ok(()) };
        let waker = Waker::from(Arc::new(Bell { place, ring: self.bell.clone() }));
        let Poll::Ready(landed) = named.flight.advance(&mut Context::from_waker(&waker)) else {
            return Ok(());
        };
        let Some(Named { id, weight, .. }) = self.flights.remove(&place) else { return Ok(()) };
        self.weight -= weight;
        match landed {
            Err(error) => self.fail(place, &id, error.into()),
            Ok(Landed { body, generated }) => {
                self.tally.answered += 1;
                self.tally.generated += generated as u64;
                Ok(self.results.write(place, &result::line(&id, &body))?)
            }
        }
    }

    fn fail(&mut self, place: Place, id: &str, error: LineError) -> Result<(), Failure> {
        self.tally.failed += 1;
        Ok(self.results.write(place, &result::error_line(id, error))?)
    }

    fn show(&self) {
        self.bar.set_position(self.tally.lines());
        self.bar.set_message(format!("{:.0} tok/s", self.tally.tokens_per_second()));
    }
}

/// Drawn on a terminal only.
fn progress(lines: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("answering   [{bar:30}] {pos}/{len} lines {msg} {eta}");
    ProgressBar::new(lines).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

impl Tally {
    fn start() -> Tally {
        let start = Instant::now();
        Tally { start, answered: 0, skipped: 0, generated: 0, failed: 0, interrupted: false }
    }

    fn lines(&self) -> u64 {
        self.answered + self.failed + self.skipped
    }

    fn tokens_per_second(&self) -> f64 {
        self.generated as f64 / self.start.elapsed().as_secs_f64().max(1e-9)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { answered, failed, skipped, generated, .. } = self;
        let (seconds, rate) = (self.start.elapsed().as_secs_f64(), self.tokens_per_second());
        write!(
            f,
            "{answered} answered, {failed} failed, {skipped} there already; {generated} tokens in {seconds:.1} s, \
             {rate:.1} tok/s"
        )
    }
}
