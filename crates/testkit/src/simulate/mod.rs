//! What the real scheduler would do to a workload on a machine that is only a cost model: a year of requests in the
//! time of a coffee.
//!
//! The engine, its scheduler, its blocks and its event streams are the real ones; only the forward pass is replaced by
//! the time it would take ([`TimedExecutor`]). The same seed gives the same report. Memory is bounded by what is open
//! at one time, never by how many requests there were.

mod drafter;
pub mod measure;
pub mod presets;
mod timed;
mod timeline;
mod times;
pub mod workload;

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::cost::CostModel;
use ropeway_engine::{Class, Clock, Engine, Event, Handle, Settings, Speculation, Stepped};
use ropeway_executor::Limits;

use crate::SimClock;
use crate::readers::{Reader, Readers};
pub use drafter::SimulatedDrafter;
pub use timed::TimedExecutor;
pub use timeline::Timeline;
pub use times::Times;
pub use workload::{Arrival, Workload};

/// A machine and how it is run.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What it can hold.
    pub limits: Limits,
    /// What a step costs.
    pub cost: CostModel,
    /// How the engine is set up.
    pub settings: Settings,
    /// How often a drafted token is right if those before it are, from 0 to 1; `None` drafts nothing.
    pub acceptance: Option<f64>,
}

/// What the requests of a class experienced.
#[derive(Clone, Debug, Default)]
pub struct Experience {
    /// Sequences answered.
    pub answered: u64,
    /// Requests turned down because the queue was full.
    pub rejected: u64,
    /// From arrival to the first step.
    pub queued: Times,
    /// From arrival to the first token.
    pub first_token: Times,
    /// Between two tokens of a stream.
    pub inter_token: Times,
    /// From arrival to the end.
    pub total: Times,
}

impl Experience {
    /// Counts all of `other` too.
    pub fn merge(&mut self, other: &Experience) {
        self.answered += other.answered;
        self.rejected += other.rejected;
        self.queued.merge(&other.queued);
        self.first_token.merge(&other.first_token);
        self.inter_token.merge(&other.inter_token);
        self.total.merge(&other.total);
    }
}

/// What a simulation came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Simulated time.
    pub elapsed: Duration,
    /// Of it, time spent in steps.
    pub busy: Duration,
    /// Steps computed.
    pub steps: u64,
    /// Prompt tokens computed.
    pub prefilled: u64,
    /// Prompt tokens that the prefix cache saved.
    pub cached: u64,
    /// Tokens generated.
    pub generated: u64,
    /// Sequences preempted.
    pub preempted: u64,
    /// Drafts: one per sequence and step that had any.
    pub drafts: u64,
    /// Tokens drafted.
    pub drafted: u64,
    /// Of these, how many were right.
    pub accepted: u64,
    /// Per class, in the order of [`Class::ALL`].
    pub classes: [Experience; 3],
    /// Sequences in the batch, added up over steps and weighted by their time.
    running: f64,
    /// Share of the blocks held, likewise.
    held: f64,
    /// Waiting and running over time.
    pub timeline: Timeline,
}

impl Report {
    /// All classes together.
    pub fn everyone(&self) -> Experience {
        let mut all = Experience::default();
        self.classes.iter().for_each(|class| all.merge(class));
        all
    }

    /// Generated tokens per simulated second.
    pub fn tokens_per_second(&self) -> f64 {
        self.generated as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Share of the time in which something was computed.
    pub fn utilisation(&self) -> f64 {
        self.busy.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Tokens that a sequence got of a step, on average.
    pub fn tokens_per_step(&self) -> f64 {
        self.generated as f64 / self.generated.saturating_sub(self.accepted).max(1) as f64
    }

    /// Generated tokens per second in which something was computed: prompts included.
    pub fn tokens_per_busy_second(&self) -> f64 {
        self.generated as f64 / self.busy.as_secs_f64().max(1e-9)
    }

    /// Mean number of sequences in a step.
    pub fn mean_running(&self) -> f64 {
        self.running / self.busy.as_secs_f64().max(1e-9)
    }

    /// Mean share of the blocks held while something was computed.
    pub fn mean_held(&self) -> f64 {
        self.held / self.busy.as_secs_f64().max(1e-9)
    }
}

/// A request, as its reader sees it.
struct Seen {
    class: Class,
    /// When it came; the engine sees it at the next step.
    at: Duration,
    submitted: Duration,
    /// When its latest token came.
    last: Option<Duration>,
}

/// Runs the arrivals through the machine. `on_progress` hears now and then how many were taken in.
pub fn simulate(
    machine: &Machine,
    arrivals: impl Iterator<Item = Arrival>,
    mut on_progress: impl FnMut(u64),
) -> Report {
    let mut run = Run::new(machine);
    let mut arrivals = arrivals.peekable();
    let mut came = 0;
    loop {
        let now = run.clock.now();
        while let Some(arrival) = arrivals.next_if(|arrival| arrival.at <= now) {
            run.submit(arrival, now);
            came += 1;
            if came % 1000 == 0 {
                on_progress(came);
            }
        }
        if run.step() == Stepped::Idle {
            let Some(next) = arrivals.peek() else { break };
            run.clock.advance_to(next.at);
        }
    }
    on_progress(came);
    run.conclude()
}

struct Run {
    engine: Engine,
    handle: Handle,
    clock: SimClock,
    readers: Readers<Seen>,
    report: Report,
}

impl Run {
    fn new(machine: &Machine) -> Self {
        let clock = SimClock::new();
        let executor = TimedExecutor::new(machine.limits, machine.cost.clone(), Some(clock.clone()));
        let mut settings = machine.settings.clone();
        if machine.acceptance.is_none() {
            settings.speculation = Speculation::Off;
        }
        let (mut engine, handle) = Engine::new(Box::new(executor), Arc::new(clock.clone()), &settings);
        if let Some(acceptance) = machine.acceptance {
            let drafter = SimulatedDrafter::new(machine.limits.vocab, acceptance);
            engine = engine.with_drafter(Box::new(drafter), settings.speculation);
        }
        Self { engine, handle, clock, readers: Readers::default(), report: Report::default() }
    }

    fn submit(&mut self, arrival: Arrival, now: Duration) {
        let class = arrival.request.class;
        match self.handle.submit(arrival.request) {
            Ok(stream) => {
                let seen = Seen { class, at: arrival.at, submitted: now, last: None };
                self.readers.add(stream, seen);
            }
            Err(_) => self.report.classes[class as usize].rejected += 1,
        }
    }

    fn step(&mut self) -> Stepped {
        let began = self.clock.now();
        let stepped = self.engine.step();
        let now = self.clock.now();
        let classes = &mut self.report.classes;
        self.readers.read(|seen, event| {
            hear(&mut classes[seen.class as usize], seen, &event, now);
            Reader::Stays
        });
        if stepped == Stepped::Ran {
            self.note_step(now, now.saturating_sub(began).as_secs_f64());
        }
        stepped
    }

    fn note_step(&mut self, now: Duration, seconds: f64) {
        let (report, roster) = (&mut self.report, self.engine.roster());
        let (running, waiting) = (self.engine.plan().chunks.len(), roster.waiting().len());
        let blocks = roster.pool.counts();
        report.running += running as f64 * seconds;
        report.held += seconds * blocks.referenced as f64 / blocks.total() as f64;
        report.timeline.note(now, [waiting, running]);
    }

    fn conclude(mut self) -> Report {
        let metrics = self.handle.board().metrics();
        self.report.elapsed = self.clock.now();
        self.report.busy = metrics.busy;
        self.report.steps = metrics.steps;
        self.report.prefilled = metrics.prefill_tokens;
        self.report.cached = metrics.cached_tokens;
        self.report.generated = metrics.generated_tokens;
        self.report.preempted = metrics.preemptions;
        self.report.drafts = metrics.drafts;
        self.report.drafted = metrics.drafted_tokens;
        self.report.accepted = metrics.accepted_tokens;
        self.report
    }
}

fn hear(experience: &mut Experience, seen: &mut Seen, event: &Event, now: Duration) {
    match event {
        Event::Token { .. } => match seen.last.replace(now) {
            Some(last) => experience.inter_token.add(now.saturating_sub(last)),
            None => experience.first_token.add(now.saturating_sub(seen.at)),
        },
        Event::Finished { usage, .. } => {
            experience.answered += 1;
            experience.queued.add(usage.queued + seen.submitted.saturating_sub(seen.at));
            experience.total.add(now.saturating_sub(seen.at));
        }
        Event::Prefilled { .. } | Event::Scored(_) => {}
    }
}
