//! The real dispatcher in front of simulated servers, driven by events.
//!
//! ```text
//! source ─ Visit, Return ─> dispatcher ─ Assignment ─> server ─ Steps ─> Said ─> dispatcher, source
//!                             ^  requeue <─ Death ────────┘
//!                             '─ Probe: every second: what servers say of themselves, and how far streams are
//! ```
//! Nothing here decides who is served or where; it carries decisions out and counts. A dead server refuses connections at once,
//! and streams that it had go on elsewhere from the tokens they have.

use std::time::Duration;

use ropeway_pool::dispatch::{Ask, Assignment, Dispatcher, Ended, Probe};
use ropeway_testkit::rng::Rng;
use ropeway_testkit::simulate::server::{Job, Progress, Said, Server};

use super::calendar::{Calendar, Event};
use super::flights::{Flight, Flights};
use super::outcome::{PoolOutcome, Throughput, Windows};
use super::plan::{Deaths, PoolPlan};
use super::source::Source;

/// How often servers are probed.
const PROBES: Duration = Duration::from_secs(1);

/// Everything that there is.
pub struct World<'a, S> {
    source: &'a mut S,
    dispatcher: Dispatcher,
    servers: Vec<Server>,
    is_dead: Vec<bool>,
    flights: Flights,
    /// Visitors who come back.
    returning: usize,
    calendar: Calendar,
    now: Duration,
    wake: Option<Duration>,
    deaths: Option<Deaths>,
    rng: Rng,
    outcome: PoolOutcome,
    block_tokens: usize,
    has_more: bool,
    said: Vec<Said>,
}

impl<'a, S: Source> World<'a, S> {
    /// A pool that nobody has asked yet.
    pub fn new(plan: &PoolPlan, source: &'a mut S) -> Self {
        let mut dispatcher = Dispatcher::new(&plan.settings);
        for _ in 0..plan.servers {
            dispatcher.add(plan.capacity);
        }
        let mut world = Self {
            source,
            dispatcher,
            servers: (0..plan.servers).map(|_| Server::new(plan.model)).collect(),
            is_dead: vec![false; plan.servers],
            flights: Flights::default(),
            returning: 0,
            calendar: Calendar::default(),
            now: Duration::ZERO,
            wake: None,
            deaths: plan.deaths,
            rng: Rng::new(plan.seed).fork(7),
            outcome: PoolOutcome::default(),
            block_tokens: plan.model.block_tokens,
            has_more: true,
            said: Vec::new(),
        };
        world.calendar.add(PROBES, Event::Probe);
        world.plan_death();
        world.plan_visit();
        world
    }

    /// Runs until everyone is served. `on_progress` hears now and then how many requests came.
    pub fn run(mut self, mut on_progress: impl FnMut(u64)) -> PoolOutcome {
        while self.is_open()
            && let Some((at, event)) = self.calendar.pop()
        {
            self.now = at;
            self.happen(event);
            self.dispatch();
            if self.outcome.asked.is_multiple_of(1024) {
                on_progress(self.outcome.asked);
            }
        }
        self.conclude()
    }

    fn is_open(&self) -> bool {
        self.has_more || self.returning > 0 || !self.flights.is_empty()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Visit(who) => {
                self.plan_visit();
                self.ask(who);
            }
            Event::Return(who) => {
                self.returning -= 1;
                self.ask(who);
            }
            Event::Steps(server) => self.steps(server as usize),
            Event::Probe => self.probe(),
            Event::Wake => self.wake = None,
            Event::Death => self.death(),
            Event::Restart(server) => self.is_dead[server as usize] = false,
        }
    }

    fn plan_visit(&mut self) {
        match self.source.visit() {
            Some(visit) => self.calendar.add(visit.at, Event::Visit(visit.who)),
            None if self.has_more => {
                self.has_more = false;
                self.note_throughput();
            }
            None => {}
        }
    }

    fn plan_death(&mut self) {
        if let Some(deaths) = self.deaths {
            let rate = self.servers.len() as f64 / deaths.every.as_secs_f64();
            self.calendar.add(self.now + self.rng.gap(rate), Event::Death);
        }
    }

    fn ask(&mut self, who: u32) {
        let question = self.source.ask(who);
        self.outcome.asked += 1;
        let ask = Ask {
            client: question.client,
            class: question.class,
            session: question.session,
            prefix: question.prompt_blocks.clone(),
            prompt_tokens: question.prompt,
            answer_tokens: self.source.expected_answer(),
            queue_timeout: self.source.queue_timeout(),
        };
        let Ok(ticket) = self.dispatcher.enqueue(ask, self.now) else {
            self.outcome.seen(&question).rejected += 1;
            self.source.gone(who);
            return;
        };
        self.flights.add(Flight::new(who, ticket, question, self.now));
    }

    /// Does what the dispatcher decides.
    fn dispatch(&mut self) {
        for ticket in self.dispatcher.expired(self.now) {
            if let Some(flight) = self.flights.slot(ticket).and_then(|slot| self.flights.remove(slot)) {
                self.outcome.seen(&flight.question).failed += 1;
                self.source.gone(flight.who);
            }
        }
        while let Some(assignment) = self.dispatcher.next(self.now) {
            self.send(assignment);
        }
        let wake = self.dispatcher.wake_at();
        if let Some(at) = wake.filter(|at| self.wake.is_none_or(|wake| *at < wake)) {
            self.wake = Some(at);
            self.calendar.add(at, Event::Wake);
        }
    }

    fn send(&mut self, Assignment { ticket, upstream, cached_tokens }: Assignment) {
        let Some(slot) = self.flights.slot(ticket) else { return };
        let Some(flight) = self.flights.get_mut(slot) else { return };
        flight.told = 0;
        let server = upstream.index();
        if self.is_dead[server] {
            self.broke_off(Progress { id: slot as u64, tokens: 0 });
            return;
        }
        let Flight { question, before, .. } = flight;
        let job = Job {
            id: slot as u64,
            prompt: question.prompt + *before,
            answer: question.answer - *before,
            blocks: question.all_blocks.clone(),
        };
        self.outcome.expected_tokens += cached_tokens as u64;
        self.servers[server].accept(job, self.now);
        self.plan_steps(server);
    }

    fn plan_steps(&mut self, server: usize) {
        if let Some(until) = self.servers[server].until() {
            self.calendar.add(until, Event::Steps(server as u32));
        }
    }

    fn steps(&mut self, server: usize) {
        if self.servers[server].until() != Some(self.now) {
            return;
        }
        let mut said = std::mem::take(&mut self.said);
        self.servers[server].advance(&mut said);
        for said in said.drain(..) {
            match said {
                Said::FirstToken { id, cached } => self.first_token(id as usize, cached),
                Said::Done { id } => self.done(id as usize),
            }
        }
        self.said = said;
        self.plan_steps(server);
    }

    fn first_token(&mut self, slot: usize, cached: usize) {
        let (now, block_tokens) = (self.now, self.block_tokens);
        let Some(flight) = self.flights.get_mut(slot) else { return };
        self.dispatcher.first_token(flight.ticket, now);
        let (broken, went_on) = (flight.broken.take(), std::mem::replace(&mut flight.has_token, true));
        if let Some(broken) = broken.filter(|_| went_on) {
            self.outcome.gaps.add(now.saturating_sub(broken));
        }
        if went_on {
            return;
        }
        let prompt = flight.question.prompt;
        self.outcome.prompt_tokens += prompt as u64;
        self.outcome.cached_tokens += cached as u64;
        self.outcome.prompt_blocks += prompt.div_ceil(block_tokens) as u64;
        self.outcome.cached_blocks += (cached / block_tokens) as u64;
        let seen = self.outcome.seen(&flight.question);
        seen.first_token.add(now.saturating_sub(flight.came));
    }

    fn done(&mut self, slot: usize) {
        let Some(flight) = self.flights.remove(slot) else { return };
        let tokens = flight.question.answer - flight.before - flight.told;
        self.dispatcher.tokens(flight.ticket, tokens, self.now);
        self.dispatcher.ended(flight.ticket, Ended::Done, self.now);
        self.outcome.generated += flight.question.answer as u64;
        let total = self.now.saturating_sub(flight.came);
        let seen = self.outcome.seen(&flight.question);
        seen.answered += 1;
        seen.total.add(total);
        if let Some(at) = self.source.answered(flight.who, self.now) {
            self.returning += 1;
            self.calendar.add(at, Event::Return(flight.who));
        }
    }

    fn probe(&mut self) {
        self.calendar.add(self.now + PROBES, Event::Probe);
        self.outcome.most_waiting = self.outcome.most_waiting.max(self.dispatcher.waiting());
        for status in self.dispatcher.statuses() {
            let server = status.upstream.index();
            let probe = if self.is_dead[server] { Probe::Down } else { self.look_at(server) };
            self.dispatcher.probed(status.upstream, probe, self.now);
        }
    }

    /// What a server says of itself, and how far its streams are.
    fn look_at(&mut self, server: usize) -> Probe {
        let (now, server) = (self.now, &self.servers[server]);
        for Progress { id, tokens } in server.progress(now) {
            let Some(flight) = self.flights.get_mut(id as usize) else { continue };
            self.dispatcher.tokens(flight.ticket, tokens - flight.told, now);
            flight.told = tokens;
        }
        let waiting = server.waiting();
        self.outcome.most_waiting_there = self.outcome.most_waiting_there.max(waiting);
        Probe::Up { running: Some(server.running()), waiting: Some(waiting) }
    }

    fn death(&mut self) {
        self.plan_death();
        let (server, Some(deaths)) = (self.rng.below(self.servers.len()), self.deaths) else { return };
        if std::mem::replace(&mut self.is_dead[server], true) {
            return;
        }
        self.outcome.deaths += 1;
        for progress in self.servers[server].crash(self.now) {
            self.broke_off(progress);
        }
        self.calendar.add(self.now + deaths.lasts, Event::Restart(server as u32));
    }

    /// An attempt failed after so many tokens.
    fn broke_off(&mut self, Progress { id, tokens }: Progress) {
        let slot = id as usize;
        let Some(flight) = self.flights.get_mut(slot) else { return };
        self.dispatcher.tokens(flight.ticket, tokens - flight.told, self.now);
        flight.before += tokens;
        flight.told = 0;
        flight.broken.get_or_insert(self.now);
        if self.dispatcher.requeue(flight.ticket, Ended::Failed, self.now).is_ok() {
            return;
        }
        if let Some(flight) = self.flights.remove(slot) {
            self.outcome.lost += 1;
            self.outcome.seen(&flight.question).failed += 1;
            self.source.gone(flight.who);
        }
    }

    /// What the pool did while visitors came: afterwards it only comes to rest.
    fn note_throughput(&mut self) {
        let busy = || self.servers.iter().map(Server::busy);
        self.outcome.throughput = Throughput {
            seconds: self.now.as_secs_f64(),
            asked: self.outcome.asked,
            generated: self.outcome.generated,
            mean_busy: busy().sum::<Duration>().div_f64(self.servers.len().max(1) as f64),
            most_busy: busy().max().unwrap_or_default(),
            windows: Windows::of(&self.dispatcher.statuses()),
        };
    }

    fn conclude(mut self) -> PoolOutcome {
        let statuses = self.dispatcher.statuses();
        self.outcome.elapsed = self.now;
        self.outcome.moved = statuses.iter().map(|status| status.totals.moved).sum();
        self.outcome.retried = statuses.iter().map(|status| status.totals.retries).sum();
        debug_assert!(self.dispatcher.is_at_rest());
        self.outcome
    }
}
