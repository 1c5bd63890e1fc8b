//! Deterministic simulation: the real engine on a mock executor, through a seeded scenario of arrivals, departures,
//! shortages and faults, with every rule checked after every step.
//!
//! [`run`] panics with what was violated; [`crate::trial`] makes the scenario smaller then. What is checked:
//!
//! ```text
//! after every step   the roster's audit: no block is lost, shared wrongly or held by someone who waits
//!                    whoever is open for a reader is in the roster, and nobody else
//!                    no more tokens and rows than a step may have; predicted within allowed, but for the minimum chunk
//! at every event     texts are those that the request would have got alone; each sequence ends once, for a good reason
//! at the end         everyone was answered, nothing is held, nothing is queued, within a bounded time
//! always             the same seed gives the same trace
//! ```

mod judge;
pub mod scenario;

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::cost::Work;
use ropeway_engine::{Clock, Engine, Handle, Rejected, Settings, Speculation, StepRecord, Stepped, Tier};

use crate::drafter::MockDrafter;
use crate::readers::{Reader, Readers};
use crate::rng::mix;
use crate::{MockExecutor, SimClock, SimDisk, trial};
use judge::Watched;
pub use scenario::{Intent, Leave, Scenario};

/// Far more turns than any scenario needs: beyond it the engine is running in circles.
const MOST_TURNS: u64 = 200_000;

/// Time between two looks at a disk that everyone waits for.
const A_MOMENT: Duration = Duration::from_millis(5);

/// How much slower than one request after another, each alone, a machine may be that runs short of everything:
/// preempted sequences are computed again, and prompts advance by a few tokens while others stream.
const SLOWDOWN: f64 = 4.0;

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// A digest of every step and every event.
    pub trace: u64,
    /// Steps computed.
    pub steps: u64,
    /// Requests turned down at once.
    pub rejected: u64,
    /// Sequences that ended at an end token or at their length.
    pub completed: u64,
    /// Sequences whose time was up.
    pub timed_out: u64,
    /// Sequences that failed, as they should.
    pub failed: u64,
    /// Sequences that their reader wanted no more of, while it read on.
    pub dropped: u64,
    /// Readers that left while their request was waiting, prefilling or streaming.
    pub left: [u64; 3],
    /// Preemptions of sequences that ended in any way but by leaving.
    pub preempted: u64,
    /// Prompt tokens that the prefix cache saved.
    pub cached: u64,
    /// Tokens that came back from a lower tier.
    pub fetched: u64,
    /// Transfers from there that ended before all was there.
    pub failed_transfers: u64,
    /// Drafted tokens that were right.
    pub accepted: u64,
    /// Drafted tokens that were wrong, or came after a wrong one.
    pub refuted: u64,
}

impl Outcome {
    /// Both together.
    pub fn and(self, other: Self) -> Self {
        Self {
            trace: mix(self.trace ^ other.trace),
            steps: self.steps + other.steps,
            rejected: self.rejected + other.rejected,
            completed: self.completed + other.completed,
            timed_out: self.timed_out + other.timed_out,
            failed: self.failed + other.failed,
            dropped: self.dropped + other.dropped,
            left: std::array::from_fn(|state| self.left[state] + other.left[state]),
            preempted: self.preempted + other.preempted,
            cached: self.cached + other.cached,
            fetched: self.fetched + other.fetched,
            failed_transfers: self.failed_transfers + other.failed_transfers,
            accepted: self.accepted + other.accepted,
            refuted: self.refuted + other.refuted,
        }
    }

    fn note(&mut self, value: u64) {
        self.trace = mix(self.trace ^ value).wrapping_add(0x9E37_79B9_7F4A_7C15);
    }

    fn note_step(&mut self, record: &StepRecord) {
        self.steps += 1;
        self.cached += record.cached_tokens as u64;
        self.accepted += record.accepted as u64;
        // What is accepted in parts of a step that failed is told with the next one.
        self.refuted += record.drafted.saturating_sub(record.accepted) as u64;
        let counts = [
            record.prefill_tokens,
            record.decode_tokens,
            record.cached_tokens,
            record.running,
            record.waiting,
            record.admitted,
            record.preempted,
            record.finished,
            record.blocks.free,
            record.blocks.cached,
            record.blocks.referenced,
        ];
        for count in counts {
            self.note(count as u64);
        }
        let times = [record.at, record.execute, record.device, record.predicted, record.allowed];
        for time in times {
            self.note(time.as_nanos() as u64);
        }
    }
}

/// Runs the scenario; prints every step if it is being replayed. Panics if a rule is violated.
pub fn run(scenario: &Scenario) -> Outcome {
    Run::new(scenario.clone()).finish()
}

struct Run {
    scenario: Scenario,
    engine: Engine,
    handle: Handle,
    clock: SimClock,
    readers: Readers<Watched>,
    outcome: Outcome,
    /// Intents submitted so far.
    came: usize,
    /// The latest step that was looked at.
    seen: u64,
    /// Sequences whose reader left in this turn; the engine lets go of them in the next.
    leaving: usize,
}

impl Run {
    fn new(scenario: Scenario) -> Self {
        let clock = SimClock::new();
        let executor = MockExecutor::new(scenario.limits)
            .with_time(clock.clone(), scenario.truth.clone())
            .with_faults(scenario.faults.clone());
        let disk = scenario.disk.map(|nature| SimDisk::new(clock.clone(), nature));
        let tier = disk.map(|disk| Arc::new(disk) as Arc<dyn Tier>);
        let settings = Settings { tier, ..scenario.settings.clone() };
        let (engine, handle) = Engine::new(Box::new(executor), Arc::new(clock.clone()), &settings);
        let engine = match scenario.drafts {
            Some(wrong) => {
                let drafter = MockDrafter::new(scenario.limits, wrong, 7);
                engine.with_drafter(Box::new(drafter), Speculation::Always(8))
            }
            None => engine,
        };
        let (readers, outcome) = (Readers::default(), Outcome::default());
        Self { scenario, engine, handle, clock, readers, outcome, came: 0, seen: 0, leaving: 0 }
    }

    fn finish(mut self) -> Outcome {
        for _ in 0..MOST_TURNS {
            self.submit_due();
            self.dismiss_impatient();
            let stepped = self.engine.step();
            self.read();
            self.engine.roster().audit();
            self.check_presence();
            match stepped {
                Stepped::Ran => self.check_step(),
                Stepped::Waiting => self.clock.advance(A_MOMENT),
                Stepped::Lost => panic!("the device came back, but the engine gave up"),
                Stepped::Idle => {
                    assert!(self.readers.is_empty(), "the engine rests although someone waits");
                    let Some(next) = self.scenario.intents.get(self.came) else { return self.conclude() };
                    self.clock.advance_to(next.at);
                }
            }
        }
        panic!("no end after {MOST_TURNS} turns");
    }

    fn submit_due(&mut self) {
        let now = self.clock.now();
        while let Some(intent) = self.scenario.intents.get(self.came).filter(|intent| intent.at <= now) {
            match self.handle.submit(intent.request.clone()) {
                Ok(stream) if intent.leave == Some(Leave::AtOnce) => {
                    self.outcome.left[0] += 1;
                    drop(stream);
                }
                Ok(stream) => self.readers.add(stream, Watched::new(&self.scenario, self.came, now)),
                Err(
                    Rejected::QueueFull { .. } | Rejected::TooLong { .. } | Rejected::TooManySequences { .. },
                ) => {
                    self.outcome.rejected += 1;
                }
                Err(reason) => panic!("request {} was turned down: {reason}", self.came),
            }
            self.came += 1;
        }
    }

    fn dismiss_impatient(&mut self) {
        let now = self.clock.now();
        for watched in self.readers.dismiss(|watched| watched.loses_patience(now)) {
            self.outcome.left[watched.state()] += 1;
        }
    }

    fn read(&mut self) {
        let (scenario, outcome, now) = (&self.scenario, &mut self.outcome, self.clock.now());
        let mut leaving = 0;
        self.readers.read(|watched, event| {
            outcome.note(watched.index as u64);
            let stays = watched.hear(scenario, event, now, outcome);
            if stays == Reader::Leaves {
                outcome.left[watched.state()] += 1;
                leaving += watched.open();
            }
            stays
        });
        self.leaving = leaving;
    }

    /// Whoever is being read is in the roster, and nobody else.
    fn check_presence(&self) {
        let roster = self.engine.roster();
        let here = roster.waiting().iter().chain(roster.running());
        let present: usize = here.map(|slot| roster.get(*slot).rows()).sum();
        let open: usize = self.readers.open().map(Watched::open).sum();
        // Of those whose reader just left, some may have ended in this very turn.
        let right = (open..=open + self.leaving).contains(&present);
        assert!(right, "{present} sequences are here, but {open} are being read and {} leave", self.leaving);
    }

    fn check_step(&mut self) {
        let (plan, limits) = (self.engine.plan(), &self.scenario.limits);
        assert!(plan.work.tokens <= limits.step_tokens, "too many tokens: {plan:?}");
        assert!(plan.work.rows <= limits.step_rows, "too many rows: {plan:?}");
        let (before, tokens) = (plan.work.tokens - plan.prefill_tokens, plan.work.tokens);
        let minimum = tokens <= limits.sizes.above(before);
        // Chunks are rounded to whole sizes, and a small rest of a prompt is taken along.
        let size = limits.sizes.above(tokens) - limits.sizes.up_to(tokens);
        let rounding = self.engine.cost().marginal(Work::chunk(limits.context, size, 0));
        let timely = plan.predicted <= plan.allowed * 2.0 + rounding;
        assert!(minimum || timely, "too long a step: {plan:?}");
        for record in self.handle.board().records_after(self.seen) {
            self.seen = record.step;
            self.outcome.note_step(&record);
            if trial::is_replay() {
                println!("{record}");
            }
        }
    }

    fn conclude(mut self) -> Outcome {
        let roster = self.engine.roster();
        assert_eq!(roster.pool.counts().referenced, 0, "nobody is here, so nothing is held");
        assert_eq!(roster.waiting().len() + roster.running().len(), 0, "nobody is here");
        assert_eq!(self.handle.board().queued(), 0, "nobody is queued");
        let last = self.scenario.intents.last().map_or(Duration::ZERO, |intent| intent.at);
        let tier = self.handle.board().metrics().tier;
        let waited = last + tier.fetching;
        let bound = waited.as_secs_f64() + SLOWDOWN * judge::one_after_another(&self.scenario);
        let took = self.clock.now().as_secs_f64();
        assert!(took <= bound, "the work took {took:.3} s, at most {bound:.3} s were expected");
        self.outcome.fetched = tier.fetched_tokens;
        self.outcome.failed_transfers = tier.failed_transfers;
        self.outcome
    }
}
