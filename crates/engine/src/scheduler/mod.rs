//! Decides what the next step computes.
//!
//! ```text
//! 1  every running stream gets its next token       streams of less urgent classes only as far as time allows while a
//!                                                   more urgent sequence is here
//! 2  what the step may still take goes to prompts   in the policy's order, cut where time, tokens or blocks run out
//! ```
//! Two budgets bound a step: tokens (what the executor can hold) and time (what running streams can bear, see
//! [`Pace`]); [`memory`] says who gets blocks when there are too few. The scheduler sees sequences and blocks, never
//! tokens' values, text or wall-clock time, and a plan is plain data: the same roster, clock and costs give the same plan.

mod clients;
pub mod memory;
mod pace;
pub mod plan;
pub mod policy;
mod streams;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use ropeway_executor::Limits;

use crate::cost::{CostModel, Work};
use crate::request::Class;
use crate::roster::Roster;
use crate::sequence::{Sequence, Slot};
use clients::Clients;
use memory::{Asking, Found, Promises};
use pace::Judging;
pub use pace::{DEFAULT_ITL_TARGET, Pace};
pub use plan::{Plan, Planned};
use policy::{Candidate, Place, Policy, PolicyKind, Surroundings, Turns};

/// What is left of a prompt is taken along if it is so many times smaller than the step.
const REST: usize = 8;

/// It is also taken along if it is no larger than the step, and a step of its own would cost more than this share of both.
const WORTHWHILE: f64 = 0.03;

/// Plans steps.
pub struct Scheduler {
    policy: Box<dyn Policy>,
    pace: Pace,
    /// What steps cost.
    pub cost: CostModel,
    clients: Clients,
    turns: Turns,
    promises: Promises,
    /// Steps planned so far.
    steps: u64,
    heap: Vec<Reverse<Place>>,
    streams: Vec<Slot>,
}

impl Scheduler {
    /// A scheduler that knows as much about the machine as `cost` does.
    pub fn new(policy: PolicyKind, pace: Pace, cost: CostModel) -> Self {
        Self {
            policy: policy.policy(),
            pace,
            cost,
            clients: Clients::default(),
            turns: Turns::default(),
            promises: Promises::default(),
            steps: 0,
            heap: Vec::new(),
            streams: Vec::new(),
        }
    }

    /// A sequence came.
    pub fn arrive(&mut self, sequence: &Sequence) {
        self.clients.arrive(sequence.ticket.client);
    }

    /// A sequence left.
    pub fn depart(&mut self, sequence: &Sequence, now: Duration) {
        self.clients.depart(sequence.ticket.client, now);
    }

    /// A sequence had its part of a step.
    pub fn charge(&mut self, sequence: &Sequence, computed: usize, generated: usize) {
        self.clients.charge(sequence.ticket.client, computed, generated);
    }

    /// Fills `plan` with the next step; an empty plan means that there is nothing to do, or nothing before the step in
    /// flight is over.
    pub fn plan(&mut self, roster: &mut Roster, now: Duration, plan: &mut Plan) {
        plan.clear();
        self.steps += 1;
        let order = self.order(roster, now);
        self.plan_streams(roster, now, &order, plan);
        self.plan_prompts(roster, now, order, plan);
        if plan.is_empty() {
            self.plan_senior(roster, now, plan);
        }
        plan.predicted = if plan.is_empty() { 0.0 } else { self.cost.predict(plan.work) };
    }

    fn plan_prompts(
        &mut self,
        roster: &mut Roster,
        now: Duration,
        mut order: BinaryHeap<Reverse<Place>>,
        plan: &mut Plan,
    ) {
        let mut streams = if plan.is_empty() { 0.0 } else { self.cost.predict(plan.work) };
        plan.allowed = plan.allowed.max(streams);
        self.survey(roster, now);
        // Whoever finds no room closes the door to those after it: were they let in, it would wait for ever. More urgent
        // ones may still come in.
        let mut closed: Option<Class> = None;
        let mut inside = roster.running().iter().filter(|slot| !roster.get(**slot).is_decoding()).count();
        // With the door closed and nobody inside, there is no point in ordering all who wait.
        while closed != Some(Class::Interactive) || inside > 0 {
            let Some(Reverse(Place { slot, .. })) = order.pop() else { break };
            let (waits, class) = (roster.get(slot).table.blocks().is_empty(), roster.get(slot).class());
            inside = inside.saturating_sub(usize::from(!waits));
            if waits && closed.is_some_and(|closed| class >= closed) {
                continue;
            }
            match self.place(roster, now, plan, slot, streams) {
                Placing::Placed => {
                    self.turns.took(roster.get(slot).class(), now);
                    if plan.chunks.last().is_some_and(|chunk| chunk.rows > 0) {
                        // Someone waits for a first token: that is a stream, too.
                        streams = self.cost.predict(plan.work);
                    }
                }
                Placing::NoRoom if waits => closed = Some(class),
                Placing::NoRoom => {}
                Placing::NoBudget => break,
            }
        }
        self.heap = order.into_vec();
    }

    fn survey(&mut self, roster: &Roster, now: Duration) {
        let (pace, mut promises) = (self.pace, std::mem::take(&mut self.promises));
        let judging = self.judging(roster, now);
        promises.survey(roster, |sequence| pace.insists_on_memory(judging, sequence));
        self.promises = promises;
    }

    fn judging(&self, roster: &Roster, now: Duration) -> Judging<'_> {
        let step_tokens = roster.limits().step_tokens;
        Judging { cost: &self.cost, now, step_tokens, odd: !self.steps.is_multiple_of(2) }
    }

    /// Candidates, the first on top.
    fn order(&mut self, roster: &Roster, now: Duration) -> BinaryHeap<Reverse<Place>> {
        self.clients.settle(now);
        let around = self.surroundings(roster);
        let mut heap = std::mem::take(&mut self.heap);
        heap.clear();
        let mut present = [false; Class::ALL.len()];
        let unfinished = roster.running().iter().filter(|slot| !roster.get(**slot).is_decoding());
        for slot in unfinished.chain(roster.waiting()) {
            let sequence = roster.get(*slot);
            present[sequence.class() as usize] = true;
            if !sequence.is_plannable() {
                continue;
            }
            let candidate = self.candidate(sequence, *slot, now);
            let rank = self.turns.rank(candidate.class, now);
            let score = self.policy.score(&candidate, &around);
            heap.push(Reverse(Place { rank, score, number: candidate.number, slot: *slot }));
        }
        for class in Class::ALL.into_iter().filter(|class| !present[*class as usize]) {
            self.turns.took(class, now);
        }
        BinaryHeap::from(heap)
    }

    fn candidate(&self, sequence: &Sequence, slot: Slot, now: Duration) -> Candidate {
        Candidate {
            slot,
            class: sequence.class(),
            number: sequence.ticket.number,
            waited: now.saturating_sub(sequence.ticket.arrival),
            remaining: sequence.pending(),
            len: sequence.len(),
            excess: self.clients.excess(sequence.ticket.client),
        }
    }

    fn surroundings(&self, roster: &Roster) -> Surroundings {
        let [_, token, ..] = self.cost.coefficients();
        let lens = roster.running().iter().map(|slot| roster.get(*slot).len());
        let mean_len = lens.sum::<usize>() as f64 / roster.running().len().max(1) as f64;
        Surroundings { pace: 1.0 / token, seniors_first: self.steps.is_multiple_of(2), mean_len }
    }

    /// Gives the candidate a chunk, admitting it first if it waits.
    fn place(
        &mut self,
        roster: &mut Roster,
        now: Duration,
        plan: &mut Plan,
        slot: Slot,
        streams: f64,
    ) -> Placing {
        let limits = *roster.limits();
        let (sequence, pool) = roster.get_with_pool(slot);
        let waits = sequence.table.blocks().is_empty();
        let gained = sequence.adopt_cached(pool, limits.block_tokens);
        let placing = self.try_place(roster, now, plan, slot, streams, waits);
        match placing {
            Placing::Placed => note_cached(roster.get_mut(slot), gained, plan),
            _ if waits => roster.stay(slot),
            _ => {}
        }
        placing
    }

    fn try_place(
        &mut self,
        roster: &mut Roster,
        now: Duration,
        plan: &mut Plan,
        slot: Slot,
        streams: f64,
        waits: bool,
    ) -> Placing {
        let limits = *roster.limits();
        let sequence = roster.get(slot);
        if waits && !has_row(roster, sequence.class()) {
            return Placing::NoRoom;
        }
        let judging = self.judging(roster, now);
        // Streams that are less urgent than the prompt do not hold it back.
        let streams = if plan.is_empty() || plan.class > sequence.class() { 0.0 } else { streams };
        let outranked = plan.prompts.is_some_and(|prompts| prompts < sequence.class());
        let allowed = if outranked {
            // Someone more urgent waits for the end of this step.
            self.pace.gentle(self.cost.predict(plan.work))
        } else {
            self.pace.allowed(judging, sequence, streams)
        };
        let insists = self.pace.insists_on_memory(judging, sequence) && !memory::is_protected(sequence);
        // First know that there is time, then look for blocks.
        let Some(tokens) = self.chunk(plan, sequence, allowed, &limits) else { return Placing::NoBudget };
        let asking = Asking { slot, tokens, waits, insists, now };
        let Found::For(tokens) = self.promises.find(roster, plan, asking) else { return Placing::NoRoom };
        if !memory::take(roster, plan, slot, tokens) {
            return Placing::NoRoom;
        }
        if waits {
            roster.admit(slot);
            plan.admitted += 1;
        }
        plan.allowed = plan.allowed.max(allowed);
        push_prompt(roster, plan, slot, tokens);
        Placing::Placed
    }

    /// How many tokens the candidate gets, if any.
    fn chunk(&self, plan: &Plan, sequence: &Sequence, allowed: f64, limits: &Limits) -> Option<usize> {
        let rows = limits.step_rows - plan.work.rows;
        let most = (limits.step_tokens - plan.work.tokens).min(sequence.longest_chunk(rows));
        // Should the prompt end here, its rows come on top.
        let ending = Work { rows: sequence.rows().min(rows), ..Work::default() };
        let left = allowed - self.cost.predict(plan.work.and(ending));
        let timely = self.cost.tokens_within(left, sequence.start(), sequence.rows_each());
        // What is left of the tile that the streams began costs little, so that prompts never stand still.
        let open = limits.tile - plan.work.tokens % limits.tile;
        let least = if plan.prefill_tokens == 0 { open } else { 0 };
        let tokens = timely.max(least).min(most);
        let tokens =
            if tokens < most { to_tile(tokens, plan.work.tokens, limits.tile).min(most) } else { tokens };
        let tokens = if plan.is_empty() { self.with_rest(sequence.start(), tokens, most) } else { tokens };
        let worthwhile = tokens >= open.min(most);
        (tokens > 0 && worthwhile).then_some(tokens)
    }

    /// A chunk of a prompt that nobody streams beside takes the rest of it along if that is not worth a step of its own.
    fn with_rest(&self, start: usize, tokens: usize, most: usize) -> usize {
        let rest = most - tokens;
        let whole = self.cost.predict(Work::chunk(start, most, 0));
        let dear = self.cost.predict(Work::chunk(start + tokens, 0, 0)) > WORTHWHILE * whole;
        if rest * REST <= tokens || (rest <= tokens && dear) { most } else { tokens }
    }

    /// Nobody can go on for want of blocks: whoever came first among the most urgent gets those of the others.
    fn plan_senior(&mut self, roster: &mut Roster, now: Duration, plan: &mut Plan) {
        let in_flight = |slot: Slot| roster.get(slot).in_flight.is_some();
        if roster.everyone().any(in_flight) {
            return;
        }
        let rank = |slot: &Slot| {
            let sequence = roster.get(*slot);
            (sequence.class(), sequence.ticket.number, sequence.index)
        };
        let Some(slot) = roster.everyone().min_by_key(rank) else { return };
        let limits = *roster.limits();
        let (sequence, pool) = roster.get_with_pool(slot);
        let waits = sequence.table.blocks().is_empty();
        let gained = sequence.adopt_cached(pool, limits.block_tokens);
        let sequence = roster.get(slot);
        let allowed = self.pace.allowed(self.judging(roster, now), sequence, 0.0);
        let most = self.chunk(plan, sequence, allowed, &limits).unwrap_or(1);
        let tokens = memory::relieve(roster, plan, slot, most, now);
        if tokens == 0 || !memory::take(roster, plan, slot, tokens) {
            return;
        }
        if waits {
            roster.admit(slot);
            plan.admitted += 1;
        }
        note_cached(roster.get_mut(slot), gained, plan);
        push_prompt(roster, plan, slot, tokens);
        plan.allowed = self.cost.predict(plan.work);
    }
}

/// The number of tokens closest to `tokens` that ends a tile which `before` others began, unless that changes much.
fn to_tile(tokens: usize, before: usize, tile: usize) -> usize {
    let beyond = (before + tokens) % tile;
    let (less, more) = (beyond, (tile - beyond) % tile);
    let change = less.min(more);
    match change * 4 > tokens {
        true => tokens,
        false if less <= more => tokens - less,
        false => tokens + more,
    }
}

/// What became of a candidate.
enum Placing {
    /// It is part of the step.
    Placed,
    /// It found no rows or blocks.
    NoRoom,
    /// The step is full.
    NoBudget,
}

/// Whether one more sequence of this class may run: as many as a step has tokens and rows for, not counting those that
/// are less urgent. These go on when there is room again.
fn has_row(roster: &Roster, class: Class) -> bool {
    let as_urgent = roster.running().partition_point(|slot| roster.get(*slot).class() <= class);
    as_urgent < roster.limits().step_rows.min(roster.limits().step_tokens)
}

/// Adds the next `tokens` of a sequence, for which it has blocks. Followers begin with it as far as there are rows.
fn push_prompt(roster: &Roster, plan: &mut Plan, slot: Slot, tokens: usize) {
    let limits = roster.limits();
    let sequence = roster.get(slot);
    let free = limits.step_rows.min(limits.step_tokens).saturating_sub(roster.running().len());
    let rows = sequence
        .rows_of(tokens, (limits.step_rows - plan.work.rows).min(free + 1 + tokens * sequence.rows_each()));
    let planned = Planned {
        slot,
        epoch: sequence.epoch,
        start: sequence.start(),
        tokens,
        drafted: 0,
        rows,
        prefill: !sequence.is_decoding(),
    };
    plan.push(planned, sequence.class());
}

/// The first time it is planned, what the cache saved is the request's; later it is only getting back its own.
fn note_cached(sequence: &mut Sequence, gained: usize, plan: &mut Plan) {
    plan.cached_tokens += gained;
    if sequence.preemptions == 0 && sequence.epoch == 0 {
        sequence.cached += gained;
    }
}
