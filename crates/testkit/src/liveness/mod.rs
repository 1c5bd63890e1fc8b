//! Liveness: every admitted request makes progress and finishes within a bound that is stated beforehand, on machines that
//! are short of memory, slow, or whose costs differ from the engine's estimate.
//!
//! [`run`] takes the real engine through a [`Scenario`] on a mock executor with simulated time, and reports what each
//! request experienced. [`workloads`] makes scenarios from seeds, [`rules`] check them, [`bounds`] computes what to expect.
//!
//! # The bound on finishing
//! ```text
//! alone(q)   seconds that request q takes on an empty machine, in steps of the executor's full size
//! before     sum of alone(q) over the requests that were open when r arrived
//! urgent     sum of alone(q) over the more urgent requests that arrived later, before r finished
//! later      sum of alone(q) over the requests of the same class that arrived later, before r finished, but at most
//!            accounts * (4 * alone(r) + sum of alone(q) over the earlier requests of r's account)
//! beside     sum of alone(q) over the less urgent requests that arrived later, before r finished, but at most one step
//!            per token of r's answer
//!
//! finish(r) - arrival(r)  <=  2 * (alone(r) + before + urgent + later + beside) + 8 steps + stalls
//! ```
//! The cap on `later` is what makes it a bound: a stream of newcomers that never ends does not raise it. Its first term
//! is the policy's promise (a prompt is overtaken by at most four times its own length), its second one is what fairness
//! between accounts may ask back. Less urgent prompts may stretch the steps of a stream up to the inter-token target,
//! which is what `beside` allows. The factor of 2 covers steps that are shorter than full size while others stream,
//! recomputation after preemptions, and the turns of less urgent classes. A step is [`bounds::step`]; stalls
//! are the time by which single steps exceeded their cost.
//!
//! # The other bounds
//! ```text
//! long among short     finish <= 3 * alone + 2 steps, if the short ones take at most half of the machine
//! short beside long    90 % of first tokens within 2 steps of their submission, all within 2 steps and another answer
//! first tokens         of interactive requests: p50, p90 and p99 <= 1.3 * (the same without bulk requests) + 1 step, and
//!                      each <= 1.3 * (the same without bulk requests) + 2 steps
//! preemptions          <= 8 per sequence
//! a prompt alone       >= 95 % of the speed that steps of full size give
//! beside streams       a prompt gets at least a quarter of the machine's time
//! between tokens       p99 <= 1.3 * target, if the streams by themselves take at most half of the target
//! do not fit together  long requests take at most 1.25 times as long as one after another
//! accounts             that always ask receive the same within a factor of 1.5; of 1.25 while one of them is preempted
//! ```

pub mod bounds;
mod report;
pub mod rules;
pub mod scenario;
pub mod workloads;

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::{Clock, Engine, Event, Handle, Stepped};

use crate::readers::{Reader, Readers};
use crate::{MockExecutor, SimClock, trial};
pub use report::{RequestOutcome, RunReport, StepOutcome};
pub use scenario::{MachineSpec, RequestSpec, Scenario, When};

/// A run is given up after so many times the time that all its requests take one after another, and some steps.
const PATIENCE: f64 = 4.0;

/// Runs the scenario. An error means that the engine turned a request down, or computes nothing although one is open.
pub fn run(scenario: &Scenario) -> Result<RunReport, String> {
    Run::new(scenario).finish()
}

/// A request as its reader sees it: its index, and how many of its sequences are open.
struct Reading {
    index: usize,
    open: usize,
}

struct Run<'a> {
    scenario: &'a Scenario,
    engine: Engine,
    handle: Handle,
    clock: SimClock,
    readers: Readers<Reading>,
    report: RunReport,
    /// Requests that were not submitted yet.
    to_come: Vec<usize>,
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let clock = SimClock::new();
        let machine = &scenario.machine;
        let executor = MockExecutor::new(machine.limits()).with_time(clock.clone(), machine.time.clone());
        let (engine, handle) = Engine::new(Box::new(executor), Arc::new(clock.clone()), &machine.settings());
        let report = RunReport {
            outcomes: vec![RequestOutcome::default(); scenario.requests.len()],
            ..RunReport::default()
        };
        let to_come = (0..scenario.requests.len()).collect();
        Self { scenario, engine, handle, clock, readers: Readers::default(), report, to_come }
    }

    fn finish(mut self) -> Result<RunReport, String> {
        let end = self.scenario.until.unwrap_or_else(|| self.given_up());
        while self.clock.now() < end {
            self.submit_due()?;
            if self.turn() == Stepped::Ran {
                continue;
            }
            if let Some(stuck) = self.readers.open().next() {
                return Err(format!("the engine is idle although request {} is open", stuck.index));
            }
            let Some(next) = self.to_come.iter().filter_map(|index| self.due(*index)).min() else { break };
            self.clock.advance_to(next);
        }
        self.report.ended = self.clock.now();
        Ok(self.report)
    }

    /// When the run ends at the latest.
    fn given_up(&self) -> Duration {
        let requests = &self.scenario.requests;
        let work: f64 = requests.iter().map(|request| bounds::alone(&self.scenario.machine, request)).sum();
        let waits = requests.iter().map(|request| match request.when {
            When::At(at) => (at, Duration::ZERO),
            When::After { pause, .. } => (Duration::ZERO, pause),
        });
        let (last, pauses) = waits
            .fold((Duration::ZERO, Duration::ZERO), |(last, sum), (at, pause)| (last.max(at), sum + pause));
        let noticed = 16.0 * bounds::step(self.scenario) * self.scenario.machine.time.stall_factor();
        last + pauses + Duration::from_secs_f64(PATIENCE * work + noticed)
    }

    /// When a request is to be submitted; `None` while that depends on another one.
    fn due(&self, index: usize) -> Option<Duration> {
        match self.scenario.requests[index].when {
            When::At(at) => Some(at),
            When::After { earlier, pause } => {
                self.report.outcomes[earlier].finished.map(|finished| finished + pause)
            }
        }
    }

    fn submit_due(&mut self) -> Result<(), String> {
        let now = self.clock.now();
        let mut due: Vec<(Duration, usize)> =
            self.to_come.iter().filter_map(|index| Some((self.due(*index)?, *index))).collect();
        due.retain(|(at, _)| *at <= now);
        due.sort_unstable();
        for (at, index) in due {
            self.to_come.retain(|other| *other != index);
            let request = &self.scenario.requests[index];
            let stream = self.handle.submit(request.build(index));
            let stream = stream.map_err(|reason| format!("request {index} was turned down: {reason}"))?;
            self.readers.add(stream, Reading { index, open: request.n });
            let outcome = &mut self.report.outcomes[index];
            (outcome.arrived, outcome.submitted) = (Some(at), Some(now));
            outcome.steps_before = self.report.steps.len();
        }
        Ok(())
    }

    fn turn(&mut self) -> Stepped {
        let began = self.clock.now();
        let stepped = self.engine.step();
        let now = self.clock.now();
        if stepped == Stepped::Ran {
            self.note_step(began, now);
        }
        let (outcomes, steps) = (&mut self.report.outcomes, self.report.steps.len());
        self.readers.read(|reading, event| {
            hear(&mut outcomes[reading.index], reading, &event, now, steps);
            Reader::Stays
        });
        stepped
    }

    fn note_step(&mut self, began: Duration, now: Duration) {
        let plan = self.engine.plan();
        let took = now.saturating_sub(began).as_secs_f64();
        let time = &self.scenario.machine.time;
        if time.stall_factor() > 1.0 {
            self.report.stalled += (took - time.slowest().predict(plan.work)).max(0.0);
        }
        let streams = plan.work.tokens - plan.prefill_tokens;
        self.report.steps.push(StepOutcome { at: began, took, streams, prefill: plan.prefill_tokens });
        if trial::is_replay() {
            for record in self.handle.board().records_after(self.report.steps.len() as u64 - 1) {
                println!("{:>9.3} s  {record}", began.as_secs_f64());
            }
        }
    }
}

fn hear(outcome: &mut RequestOutcome, reading: &mut Reading, event: &Event, now: Duration, steps: usize) {
    match event {
        Event::Prefilled { computed, cached } => {
            let new = computed - cached;
            outcome.prefilled = outcome.prefilled.max(new);
        }
        Event::Placed { .. } | Event::Scored(_) => {}
        Event::Token { sequence, .. } => {
            outcome.generated += 1;
            if outcome.first.is_none() {
                outcome.first = Some(now);
                outcome.steps_to_first = steps - outcome.steps_before;
            }
            if *sequence == 0
                && let Some(last) = outcome.last.replace(now)
            {
                outcome.gaps.push((now, now.saturating_sub(last).as_secs_f64()));
            }
        }
        Event::Finished { usage, .. } => {
            outcome.preemptions = outcome.preemptions.max(usage.preemptions);
            reading.open -= 1;
            if reading.open == 0 {
                outcome.finished = Some(now);
            }
        }
    }
}
