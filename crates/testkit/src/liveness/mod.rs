//! Liveness: everyone who was admitted gets on, in a time that can be stated beforehand, on machines that are short of
//! memory, slow, or not what the engine believes them to be.
//!
//! [`run`] takes the real engine through a [`Scenario`] on a mock executor with simulated time, and reports what each
//! request experienced. [`workloads`] makes scenarios from seeds; [`rules`] says what must hold.
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
//! which is what `beside` allows. The factor of 2 pays for steps that are shorter than full size while others stream,
//! for recomputation after preemptions, and for the turns of less urgent classes. A step is [`bounds::step`]; stalls
//! are the time by which single steps exceeded their cost.
//!
//! # The other bounds
//! ```text
//! long among short     finish <= 3 * alone + 2 steps, if the short ones take at most half of the machine
//! first tokens         of interactive requests: <= 1.3 * (the same without bulk requests) + 1 step
//! preemptions          <= 8 per sequence
//! a prompt alone       >= 95 % of the speed that steps of full size give
//! beside streams       a prompt gets at least a quarter of the machine's time
//! between tokens       p99 <= 1.3 * target, if the streams by themselves take at most half of the target
//! accounts             that always ask receive the same within a factor of 1.5
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
pub use report::{Answer, Report, Step};
pub use scenario::{Machine, Scenario, Visit, When};

/// A run is given up after so many times the time that all its requests take one after another, and some steps.
const PATIENCE: f64 = 4.0;

/// Runs the scenario. An error means that the engine turned a request down, or stands still although one is open.
pub fn run(scenario: &Scenario) -> Result<Report, String> {
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
    report: Report,
    /// Requests that were not submitted yet.
    to_come: Vec<usize>,
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let clock = SimClock::new();
        let machine = &scenario.machine;
        let executor = MockExecutor::new(machine.limits()).with_time(clock.clone(), machine.time.clone());
        let (engine, handle) = Engine::new(Box::new(executor), Arc::new(clock.clone()), &machine.settings());
        let report = Report { answers: vec![Answer::default(); scenario.visits.len()], ..Report::default() };
        let to_come = (0..scenario.visits.len()).collect();
        Self { scenario, engine, handle, clock, readers: Readers::default(), report, to_come }
    }

    fn finish(mut self) -> Result<Report, String> {
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
        let visits = &self.scenario.visits;
        let work: f64 = visits.iter().map(|visit| bounds::alone(&self.scenario.machine, visit)).sum();
        let waits = visits.iter().map(|visit| match visit.when {
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
        match self.scenario.visits[index].when {
            When::At(at) => Some(at),
            When::After { earlier, pause } => {
                self.report.answers[earlier].finished.map(|finished| finished + pause)
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
            let visit = &self.scenario.visits[index];
            let stream = self.handle.submit(visit.request(index));
            let stream = stream.map_err(|reason| format!("request {index} was turned down: {reason}"))?;
            self.readers.add(stream, Reading { index, open: visit.n });
            let answer = &mut self.report.answers[index];
            (answer.arrived, answer.submitted) = (Some(at), Some(now));
            answer.steps_before = self.report.steps.len();
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
        let (answers, steps) = (&mut self.report.answers, self.report.steps.len());
        self.readers.read(|reading, event| {
            hear(&mut answers[reading.index], reading, &event, now, steps);
            Reader::Stays
        });
        stepped
    }

    fn note_step(&mut self, began: Duration, now: Duration) {
        let plan = self.engine.plan();
        let took = now.saturating_sub(began).as_secs_f64();
        let usual = self.scenario.machine.time.slowest().predict(plan.work);
        self.report.stalled += (took - usual).max(0.0);
        let streams = plan.work.tokens - plan.prefill_tokens;
        self.report.steps.push(Step { at: began, took, streams, prefill: plan.prefill_tokens });
        if trial::is_replay() {
            self.handle.board().records_after(self.report.steps.len() as u64 - 1).iter().for_each(|record| {
                println!("{:>9.3} s  {record}", began.as_secs_f64());
            });
        }
    }
}

fn hear(answer: &mut Answer, reading: &mut Reading, event: &Event, now: Duration, steps: usize) {
    match event {
        Event::Prefilled { computed, cached } => {
            let new = computed - cached;
            answer.prefilled = answer.prefilled.max(new);
        }
        Event::Scored(_) => {}
        Event::Token { sequence, .. } => {
            answer.generated += 1;
            if answer.first.is_none() {
                answer.first = Some(now);
                answer.steps_to_first = steps - answer.steps_before;
            }
            if *sequence == 0
                && let Some(last) = answer.last.replace(now)
            {
                answer.gaps.push((now, now.saturating_sub(last).as_secs_f64()));
            }
        }
        Event::Finished { usage, .. } => {
            answer.preemptions = answer.preemptions.max(usage.preemptions);
            reading.open -= 1;
            if reading.open == 0 {
                answer.finished = Some(now);
            }
        }
    }
}
