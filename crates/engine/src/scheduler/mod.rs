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
mod id_map;
pub mod memory;
mod pace;
pub mod plan;
pub mod policy;
mod prompts;
mod streams;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::cost::CostModel;
use crate::request::Class;
use crate::roster::Roster;
use crate::sequence::{Sequence, Slot};
use crate::tier::Loading;
use clients::Clients;
use memory::Promises;
use pace::Judging;
pub use pace::{DEFAULT_ITL_TARGET, Pace};
pub use plan::{Plan, Planned};
use policy::{Candidate, Place, Policy, PolicyKind, Surroundings, Turns};

/// How long after a more urgent sequence came steps of less urgent work are kept short.
const LATELY: Duration = Duration::from_secs(5);

/// Plans steps.
pub struct Scheduler {
    policy: Box<dyn Policy>,
    /// How long steps may take.
    pub(crate) pace: Pace,
    /// What steps cost.
    pub cost: CostModel,
    clients: Clients,
    turns: Turns,
    /// The same for streams.
    stream_turns: Turns,
    promises: Promises,
    /// Steps planned so far.
    steps: u64,
    /// Those of them that had streams.
    streamed: u64,
    /// When the latest sequence of each class came.
    arrivals: [Option<Duration>; Class::ALL.len()],
    /// Whether other models wait for the same hardware.
    pub contended: bool,
    /// How long blocks take to come from a lower tier, if there is one.
    pub(crate) loading: Option<Loading>,
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
            stream_turns: Turns::default(),
            promises: Promises::default(),
            steps: 0,
            streamed: 0,
            arrivals: [None; Class::ALL.len()],
            contended: false,
            loading: None,
            heap: Vec::new(),
            streams: Vec::new(),
        }
    }

    /// A sequence came.
    pub fn arrive(&mut self, sequence: &Sequence) {
        self.clients.arrive(sequence.ticket.client);
        self.arrivals[sequence.class() as usize] = Some(sequence.ticket.arrival);
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
        self.streamed += u64::from(!plan.is_empty());
        self.plan_prompts(roster, now, order, plan);
        if plan.is_empty() {
            self.plan_senior(roster, now, plan);
        }
        plan.predicted = if plan.is_empty() { 0.0 } else { self.cost.predict(plan.work) };
    }

    fn judging(&self, roster: &Roster, now: Duration) -> Judging<'_> {
        let step_tokens = roster.limits().step_tokens;
        let (odd, contended) = (!self.steps.is_multiple_of(2), self.contended);
        // Two and two: seniors come first in every second step, and should have a part in some of those.
        let shared = !(self.streamed / 2).is_multiple_of(2);
        Judging { cost: &self.cost, now, step_tokens, odd, shared, contended }
    }

    /// The most urgent class of which a sequence came lately, so that another one may come any moment.
    fn expected(&self, now: Duration) -> Option<Class> {
        let lately = |arrival: Duration| now.saturating_sub(arrival) < LATELY;
        Class::ALL.into_iter().find(|class| self.arrivals[*class as usize].is_some_and(lately))
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
}
