//! Decides what the next step computes.
//!
//! ```text
//! 1  every running stream gets its next token        (and blocks for it; someone is preempted if there are none)
//! 2  what the step may still take goes to prompts, in the policy's order, cut where time or tokens run out
//! ```
//! Two budgets bound a step: tokens (what the executor can hold) and time (what running streams can bear, see
//! [`Pace`]). The scheduler sees sequences and blocks, never tokens' values, text or wall-clock time, and a plan is
//! plain data: the same roster, clock and costs give the same plan.

mod clients;
mod pace;
pub mod plan;
pub mod policy;

use ropeway_executor::Limits;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::cost::{CostModel, Work};
use crate::request::Class;
use crate::roster::Roster;
use crate::sequence::{Sequence, Slot};
use clients::Clients;
pub use pace::{DEFAULT_ITL_TARGET, Pace};
pub use plan::{Plan, Planned};
use policy::{Candidate, Place, Policy, PolicyKind, Surroundings, Turns};

/// Rows that matrix kernels compute together: a step costs about the same up to the next multiple, so that chunks are
/// cut there. What is left of the tile that the streams began goes to a prompt even when the step's time is used up:
/// it costs little, and prompts never stand still.
pub const TILE: usize = 6;

/// Forced tokens that a stream may add to a step: as many as the keys of JSON take, few enough for a long forced text not
/// to hold up the other streams.
const FORCED_AT_ONCE: usize = 16;

/// Plans steps.
pub struct Scheduler {
    policy: Box<dyn Policy>,
    pace: Pace,
    /// What steps cost.
    pub cost: CostModel,
    clients: Clients,
    turns: Turns,
    /// Steps planned so far.
    steps: u64,
    heap: Vec<Reverse<Place>>,
    decodes: Vec<Slot>,
}

impl Scheduler {
    /// A scheduler that knows nothing about the machine yet.
    pub fn new(policy: PolicyKind, pace: Pace, cost: CostModel) -> Self {
        Self {
            policy: policy.policy(),
            pace,
            cost,
            clients: Clients::default(),
            turns: Turns::default(),
            steps: 0,
            heap: Vec::new(),
            decodes: Vec::new(),
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

    /// Fills `plan` with the next step; an empty plan means that there is nothing to do.
    pub fn plan(&mut self, roster: &mut Roster, now: Duration, plan: &mut Plan) {
        plan.clear();
        self.steps += 1;
        self.plan_decodes(roster, plan);
        self.plan_prefills(roster, now, plan);
        plan.predicted = if plan.is_empty() { 0.0 } else { self.cost.predict(plan.work) };
    }

    fn plan_decodes(&mut self, roster: &mut Roster, plan: &mut Plan) {
        let decoding = |slot: &&Slot| roster.get(**slot).is_decoding();
        self.decodes.clear();
        self.decodes.extend(roster.running().iter().filter(decoding));
        let room = roster.limits().step_tokens;
        for (index, slot) in self.decodes.iter().enumerate() {
            let after = self.decodes.len() - 1 - index;
            let sequence = roster.get(*slot);
            // Everyone after it needs a token, too.
            let tokens = (1 + sequence.forced.min(FORCED_AT_ONCE)).min(room - plan.work.tokens - after);
            // Someone before it may have needed its blocks.
            if sequence.is_decoding() && claim(roster, plan, *slot, tokens) {
                let sequence = roster.get(*slot);
                let rows = sequence.rows_of(tokens);
                plan.push(Planned { slot: *slot, tokens, rows, prefill: false }, sequence.computed);
            }
        }
    }

    fn plan_prefills(&mut self, roster: &mut Roster, now: Duration, plan: &mut Plan) {
        let mut streams = if plan.is_empty() { 0.0 } else { self.cost.predict(plan.work) };
        plan.allowed = streams;
        let mut order = self.order(roster, now);
        let mut door_open = true;
        let mut inside = roster.running().iter().filter(|slot| !roster.get(**slot).is_decoding()).count();
        // With the door closed and nobody inside, there is no point in ordering all who wait.
        while door_open || inside > 0 {
            let Some(Reverse(Place { slot, .. })) = order.pop() else { break };
            let waits = roster.get(slot).table.blocks().is_empty();
            inside -= usize::from(!waits);
            if waits && !door_open {
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
                Placing::NoRoom => door_open = false,
                Placing::NoBudget => break,
            }
        }
        self.heap = order.into_vec();
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
            let candidate = self.candidate(roster.get(*slot), *slot, now);
            let rank = self.turns.rank(candidate.class, now);
            let score = self.policy.score(&candidate, &around);
            heap.push(Reverse(Place { rank, score, number: candidate.number, slot: *slot }));
            present[candidate.class as usize] = true;
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
        &self,
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
        if waits && !has_room(roster, plan, slot) {
            roster.stay(slot);
            return Placing::NoRoom;
        }
        let sequence = roster.get(slot);
        let allowed = self.pace.allowed(&self.cost, sequence, now, streams, limits.step_tokens);
        let Some(tokens) = self.chunk(plan, sequence, allowed, &limits) else {
            if waits {
                roster.stay(slot);
            }
            return Placing::NoBudget;
        };
        if waits {
            roster.admit(slot);
            plan.admitted += 1;
        }
        note_cached(roster.get_mut(slot), gained, plan);
        if !claim(roster, plan, slot, tokens) {
            return Placing::NoRoom;
        }
        plan.allowed = plan.allowed.max(allowed);
        let sequence = roster.get(slot);
        let rows = sequence.rows_of(tokens);
        plan.push(Planned { slot, tokens, rows, prefill: true }, sequence.computed);
        Placing::Placed
    }

    /// How many tokens the candidate gets, if any.
    fn chunk(&self, plan: &Plan, sequence: &Sequence, allowed: f64, limits: &Limits) -> Option<usize> {
        let rows = limits.step_rows - plan.work.rows;
        let most = (limits.step_tokens - plan.work.tokens).min(sequence.longest_chunk(rows));
        // Should the prompt end here, its rows come on top.
        let ending = Work { rows: sequence.rows(), ..Work::default() };
        let left = allowed - self.cost.predict(plan.work.and(ending));
        let timely = self.cost.tokens_within(left, sequence.computed, sequence.rows_each());
        let open = TILE - plan.work.tokens % TILE;
        let least = if plan.prefill_tokens == 0 { open } else { 0 };
        let tokens = timely.max(least).min(most);
        let beyond = (plan.work.tokens + tokens) % TILE;
        let tokens = if tokens < most && beyond < tokens { tokens - beyond } else { tokens };
        let worthwhile = tokens >= open.min(most);
        (tokens > 0 && worthwhile).then_some(tokens)
    }
}

/// What became of a candidate.
enum Placing {
    /// It is part of the step.
    Placed,
    /// It found no rows or blocks. It closes the door behind it: were smaller ones let in, it would wait for ever.
    NoRoom,
    /// The step is full.
    NoBudget,
}

/// The first time it is planned, what the cache saved is the request's; later it is only getting back its own.
fn note_cached(sequence: &mut Sequence, gained: usize, plan: &mut Plan) {
    plan.cached_tokens += gained;
    if sequence.preemptions == 0 {
        sequence.cached += gained;
    }
}

/// Whether a waiting sequence can join: enough rows, and blocks for all its tokens beside what is owed to the running
/// ones and one more for each of their streams. Less urgent sequences make way for it.
fn has_room(roster: &mut Roster, plan: &mut Plan, slot: Slot) -> bool {
    let limits = *roster.limits();
    let sequence = roster.get(slot);
    let rows: usize = roster.running().iter().map(|slot| roster.get(*slot).rows()).sum();
    // Every row is a token of its own once it streams.
    if rows + sequence.rows() > limits.step_rows.min(limits.step_tokens) {
        return false;
    }
    let held = sequence.table.blocks().len();
    let needed = sequence.blocks_needed(limits.block_tokens) - held;
    let class = sequence.class();
    loop {
        let reserve = roster.owed() + roster.running().len();
        if needed + reserve <= roster.pool.counts().available() {
            return true;
        }
        let less_urgent = |other: &&Slot| roster.get(**other).class() > class;
        let victims = roster.running().iter().filter(less_urgent).copied();
        let Some(victim) = victims.min_by_key(|other| cost_of_losing(roster, *other)) else {
            return false;
        };
        plan.withdraw(victim, roster.get(victim).computed);
        preempt(roster, plan, victim);
    }
}

/// Gets blocks for the next `tokens` of a running sequence, if need be from others; if nobody else can give any, the
/// sequence itself goes back to waiting.
fn claim(roster: &mut Roster, plan: &mut Plan, slot: Slot, tokens: usize) -> bool {
    loop {
        if let Ok(copy) = roster.grow(slot, tokens) {
            plan.copies.extend(copy);
            return true;
        }
        let victim = victim(roster, plan, slot).filter(|other| yields(roster, *other, slot));
        preempt(roster, plan, victim.unwrap_or(slot));
        if victim.is_none() {
            return false;
        }
    }
}

/// Whether `victim` is the one to make way, and not the one that needs blocks.
fn yields(roster: &Roster, victim: Slot, needy: Slot) -> bool {
    cost_of_losing(roster, victim) < cost_of_losing(roster, needy)
}

fn preempt(roster: &mut Roster, plan: &mut Plan, slot: Slot) {
    roster.preempt(slot);
    plan.preempted += 1;
}

/// Who loses least by being preempted, of those that are not part of the step yet.
fn victim(roster: &Roster, plan: &Plan, needy: Slot) -> Option<Slot> {
    let eligible = roster.running().iter().filter(|slot| **slot != needy && !plan.includes(**slot));
    eligible.copied().min_by_key(|slot| cost_of_losing(roster, *slot))
}

/// Lowest class first, then least computed, then latest.
fn cost_of_losing(roster: &Roster, slot: Slot) -> impl Ord + use<> {
    let sequence = roster.get(slot);
    (Reverse(sequence.class()), sequence.computed, Reverse(sequence.ticket.number), Reverse(sequence.index))
}
