//! What the real scheduler would do to a workload on a machine that is only a cost model: a year of requests in the
//! time of a coffee.
//!
//! The engine, its scheduler, its blocks and its event streams are the real ones; only the forward pass is replaced by
//! the time it would take ([`TimedExecutor`]), and a disk by the time that it would ([`TimedDisk`]). The same seed gives the
//! same report. Memory is bounded by what is open at one time, never by how many requests there were.

mod drafter;
pub mod hardware;
pub mod measure;
pub mod presets;
pub mod replay;
mod report;
pub mod server;
mod timed;
mod timed_disk;
mod timeline;
mod times;
pub mod workload;

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::cost::CostModel;
use ropeway_engine::{Class, Clock, Engine, Event, FinishReason, Handle, Settings, Speculation, Stepped};
use ropeway_executor::Limits;

use crate::SimClock;
use crate::readers::{Reader, Readers};
pub use drafter::SimulatedDrafter;
pub use report::{Experience, Found, Report};
pub use timed::{GpuTimes, TimedExecutor};
pub use timed_disk::{DiskModel, TimedDisk};
pub use timeline::Timeline;
pub use times::Times;
pub use workload::{Arrival, Workload};

/// How long an engine waits that has nothing to compute while blocks are on their way, as the real one does.
const MOMENT: Duration = Duration::from_millis(1);

/// How often an idle engine stores blocks, about.
const IDLE: Duration = Duration::from_secs(1);

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
    /// The tier below its memory, if there is one.
    pub disk: Option<Disk>,
}

/// A disk, and the way to it.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// What it can do.
    pub model: DiskModel,
    /// How long steps wait while a block is copied to or from its buffers.
    pub copy: Duration,
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
    let idle = if machine.disk.is_some() { IDLE } else { Duration::MAX };
    loop {
        let now = run.clock.now();
        while let Some(arrival) = arrivals.next_if(|arrival| arrival.at <= now) {
            run.submit(arrival, now);
            came += 1;
            if came % 1000 == 0 {
                on_progress(came);
            }
        }
        let next = arrivals.peek().map(|arrival| arrival.at);
        match (run.step(), next) {
            (Stepped::Ran, _) => {}
            (Stepped::Waiting, next) => run.wait(MOMENT, next),
            (_, Some(next)) => run.wait(idle, Some(next)),
            (_, None) => break,
        }
    }
    on_progress(came);
    run.conclude()
}

struct Run {
    block_tokens: usize,
    engine: Engine,
    handle: Handle,
    clock: SimClock,
    readers: Readers<Seen>,
    report: Report,
}

impl Run {
    fn new(machine: &Machine) -> Self {
        let clock = SimClock::new();
        let copy = machine.disk.map_or(Duration::ZERO, |disk| disk.copy);
        let executor = TimedExecutor::new(machine.limits, machine.cost.clone(), Some(clock.clone()));
        let executor = executor.with_copies(copy);
        let mut settings = machine.settings.clone();
        if let Some(disk) = machine.disk {
            settings.tier = Some(Arc::new(TimedDisk::new(clock.clone(), disk.model)));
        }
        if machine.acceptance.is_none() {
            settings.speculation = Speculation::Off;
        }
        let (mut engine, handle) = Engine::new(Box::new(executor), Arc::new(clock.clone()), &settings);
        if let Some(acceptance) = machine.acceptance {
            let drafter = SimulatedDrafter::new(machine.limits.vocab, acceptance);
            engine = engine.with_drafter(Box::new(drafter), settings.speculation);
        }
        let block_tokens = machine.limits.block_tokens;
        Self { block_tokens, engine, handle, clock, readers: Readers::default(), report: Report::default() }
    }

    /// Lets time pass, but not beyond the next arrival.
    fn wait(&self, time: Duration, next: Option<Duration>) {
        let until = self.clock.now().saturating_add(time);
        self.clock.advance_to(next.map_or(until, |next| next.min(until)));
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
        let Report { classes, found, .. } = &mut self.report;
        self.readers.read(|seen, event| {
            hear(&mut classes[seen.class as usize], seen, &event, now);
            if let Event::Finished { usage, reason, .. } = &event
                && !is_failure(reason)
            {
                found.add(usage, self.block_tokens);
            }
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
        self.report.lost_blocks = metrics.tier.lost_blocks;
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
        Event::Finished { reason, .. } if is_failure(reason) => experience.failed += 1,
        Event::Finished { usage, .. } => {
            experience.answered += 1;
            experience.queued.add(usage.queued + seen.submitted.saturating_sub(seen.at));
            experience.total.add(now.saturating_sub(seen.at));
        }
        Event::Placed { .. } | Event::Prefilled { .. } | Event::Scored(_) => {}
    }
}

/// Whether a sequence ended before it was done.
fn is_failure(reason: &FinishReason) -> bool {
    matches!(reason, FinishReason::TimedOut | FinishReason::Failed(_) | FinishReason::Cancelled)
}
