//! The second part of a step: what is left of its time, for prompts.
//!
//! ```text
//! candidate ── time for a chunk? ── a row and blocks for it? ── admitted if it waits ── part of the step
//! ```
//! Time comes first: nobody loses blocks for a chunk that does not fit into the step.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::Duration;

use ropeway_executor::{Class, Limits, StepSizes};

use super::memory::{self, Asking, Found};
use super::pace::{Beside, Judging};
use super::policy::Place;
use super::{Plan, Planned, Scheduler};
use crate::cost::Work;
use crate::roster::Roster;
use crate::sequence::{Fetching, Sequence, Slot};

/// What is left of a prompt is taken along if it is so many times smaller than the step.
const REST: usize = 8;

/// It is also taken along if it is no larger than the step, and a step of its own would cost more than this share of both.
const WORTHWHILE: f64 = 0.03;

/// Share of its time by which a step may grow beyond what is allowed when a chunk fills up its size.
const FILLING: f64 = 0.05;

/// Candidates for whom too little of the step is left that are passed over for a shorter one.
const PASSED_OVER: usize = 4;

impl Scheduler {
    pub(super) fn plan_prompts(
        &mut self,
        roster: &mut Roster,
        now: Duration,
        mut order: BinaryHeap<Reverse<Place>>,
        plan: &mut Plan,
    ) {
        let streams = if plan.is_empty() { 0.0 } else { self.cost.predict(plan.work) };
        let mut beside = Beside { streams, awaited: streams };
        plan.allowed = plan.allowed.max(streams);
        self.survey(roster, now);
        // Whoever finds no room closes the door to those after it: were they let in, it would wait for ever. More urgent
        // ones may still come in.
        let mut closed: Option<Class> = None;
        let mut inside = roster.running().iter().filter(|slot| !roster.get(**slot).is_decoding()).count();
        let mut passed_over = 0;
        // With the door closed and nobody inside, there is no point in ordering all who wait.
        while closed != Some(Class::Interactive) || inside > 0 {
            let Some(Reverse(Place { slot, .. })) = order.pop() else { break };
            let (waits, class) = (roster.get(slot).table.blocks().is_empty(), roster.get(slot).class());
            inside = inside.saturating_sub(usize::from(!waits));
            if waits && closed.is_some_and(|closed| class >= closed) {
                continue;
            }
            match self.place(roster, plan, Prompt { slot, waits, now, beside }) {
                Placing::Placed => {
                    self.turns.took(roster.get(slot).class(), now);
                    if plan.chunks.last().is_some_and(|chunk| chunk.rows > 0) {
                        beside.awaited = self.cost.predict(plan.work);
                    }
                }
                Placing::NoRoom if waits => closed = Some(class),
                Placing::NoRoom | Placing::Fetched | Placing::Later => {}
                Placing::PassedOver if passed_over < PASSED_OVER => passed_over += 1,
                Placing::PassedOver | Placing::NoBudget => break,
            }
        }
        self.heap = order.into_vec();
    }

    fn survey(&mut self, roster: &Roster, now: Duration) {
        let mut promises = std::mem::take(&mut self.promises);
        let judging = self.judging(roster, now);
        promises.survey(roster, now, |sequence| judging.insists_on_memory(sequence));
        self.promises = promises;
    }

    /// Gives the candidate a chunk, admitting it first if it waits.
    fn place(&mut self, roster: &mut Roster, plan: &mut Plan, prompt: Prompt) -> Placing {
        let limits = *roster.limits();
        let (sequence, pool) = roster.get_with_pool(prompt.slot);
        let before = sequence.computed;
        let gained = sequence.adopt_cached(pool, &limits);
        let placing = match self.worth_fetching(roster, prompt) {
            Some(blocks) => self.try_fetch(roster, plan, prompt, blocks),
            None => self.try_place(roster, plan, prompt),
        };
        match placing {
            Placing::Placed | Placing::Fetched => {
                let sequence = roster.get_mut(prompt.slot);
                note_cached(sequence, sequence.computed - before, plan);
            }
            _ if prompt.waits => roster.stay(prompt.slot),
            // It keeps what it found, although it has no part in this step.
            _ => note_cached(roster.get_mut(prompt.slot), gained, plan),
        }
        placing
    }

    fn try_place(&mut self, roster: &mut Roster, plan: &mut Plan, prompt: Prompt) -> Placing {
        let Prompt { slot, waits, now, .. } = prompt;
        let sequence = roster.get(slot);
        if waits && !has_row(roster, sequence.class()) {
            return Placing::NoRoom;
        }
        // First know that there is time, then look for blocks.
        let Some(allowed) = self.allowed(roster, plan, prompt) else { return Placing::Later };
        let tokens = match self.chunk(plan, sequence, allowed, roster.limits()) {
            Portion::Of(tokens) => tokens,
            Portion::NotWorthwhile => return Placing::PassedOver,
            Portion::NoTime => return Placing::NoBudget,
        };
        let insists = self.judging(roster, now).insists_on_memory(sequence);
        let insists = insists || memory::is_protected(sequence, now);
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

    /// Blocks that come sooner from a lower tier than what they stand for can be computed.
    fn worth_fetching(&mut self, roster: &Roster, prompt: Prompt) -> Option<Range<usize>> {
        let loading = self.loading.as_mut()?;
        let blocks = roster.fetchable(prompt.slot, prompt.waits);
        let computed = roster.get(prompt.slot).computed;
        let tokens = (blocks.end * roster.limits().block_tokens).saturating_sub(computed);
        let work = Work::chunk(computed, tokens, 0);
        loading.is_worth(blocks.len(), self.cost.predict(work)).then_some(blocks)
    }

    /// Sets memory aside for blocks that are to be fetched, admitting the candidate first if it waits.
    fn try_fetch(
        &mut self,
        roster: &mut Roster,
        plan: &mut Plan,
        prompt: Prompt,
        blocks: Range<usize>,
    ) -> Placing {
        let Prompt { slot, waits, now, .. } = prompt;
        // What another one is about to have is shared with it then.
        if roster.is_on_its_way(slot) {
            return Placing::Later;
        }
        if waits && !has_row(roster, roster.get(slot).class()) {
            return Placing::NoRoom;
        }
        let insists = self.judging(roster, now).insists_on_memory(roster.get(slot));
        let insists = insists || memory::is_protected(roster.get(slot), now);
        let block_tokens = roster.limits().block_tokens;
        let (sequence, pool) = roster.get_with_pool(slot);
        let tokens = blocks.len() * block_tokens;
        // Behind a gap only all of them are of use.
        let least = if blocks.start > sequence.table.blocks().len() { tokens } else { block_tokens };
        sequence.skip_to(blocks.start, pool, block_tokens);
        let asking = Asking { slot, tokens, waits, insists, now };
        let Found::For(fitting) = self.promises.find(roster, plan, asking) else { return Placing::NoRoom };
        let fitting = fitting / block_tokens * block_tokens;
        if fitting < least || !memory::take(roster, plan, slot, fitting) {
            return Placing::NoRoom;
        }
        if waits {
            roster.admit(slot);
            plan.admitted += 1;
        }
        let sequence = roster.get_mut(slot);
        let end = (sequence.computed + fitting) / block_tokens;
        sequence.fetching = Some(Fetching { transfer: None, end });
        plan.fetches.push(slot);
        Placing::Fetched
    }

    /// Seconds that the step may take with the candidate in it; nothing if it is not its turn.
    fn allowed(&self, roster: &Roster, plan: &Plan, prompt: Prompt) -> Option<f64> {
        let Prompt { slot, now, beside, .. } = prompt;
        let sequence = roster.get(slot);
        let class = sequence.class();
        let expects_more_urgent = self.expected(now).is_some_and(|expected| expected < class);
        if !self.turns.is_overdue(class, now) {
            if plan.class < class {
                // Someone more urgent waits for the end of this step, for a first token or for the next.
                return Some(self.pace.behind(self.cost.predict(plan.work_before(class))));
            }
            if expects_more_urgent {
                let fixed = self.cost.predict(Work::chunk(sequence.start(), 0, 0));
                return Some(self.pace.expecting(fixed, beside.streams));
            }
        }
        let judging = self.judging(roster, now);
        let contended = judging.contended || expects_more_urgent;
        // Streams that are less urgent than the prompt do not hold it back.
        let alone = plan.is_empty() || plan.class > class;
        let beside = if alone { Beside::default() } else { beside };
        self.pace.allowed(Judging { contended, ..judging }, sequence, beside)
    }

    /// How many tokens the candidate gets, if any.
    fn chunk(&self, plan: &Plan, sequence: &Sequence, allowed: f64, limits: &Limits) -> Portion {
        let (before, sizes) = (plan.work.tokens, limits.sizes);
        let rows = limits.step_rows - plan.work.rows;
        let most = (limits.step_tokens - before).min(sequence.longest_chunk(rows));
        let open = sizes.above(before) - before;
        // What is left of the size that the streams began costs little, so that prompts whose turn it is never stand still.
        let least = if plan.prefill_tokens == 0 { open } else { self.filling(plan, sequence, sizes) };
        let timely = self.timely(plan, sequence, allowed, rows).max(least);
        let is_timely = sizes.computed(before + most) <= before + timely;
        let tokens = if is_timely { most } else { to_size(timely, before, sizes).min(most) };
        let tokens = if plan.is_empty() { self.with_rest(sequence.start(), tokens, most) } else { tokens };
        match tokens {
            _ if timely.min(most) == 0 => Portion::NoTime,
            _ if tokens < open.min(most) => Portion::NotWorthwhile,
            _ => Portion::Of(tokens),
        }
    }

    /// Tokens of the candidate with which the step would take as long as it may, if it then ended at a size.
    fn timely(&self, plan: &Plan, sequence: &Sequence, allowed: f64, rows: usize) -> usize {
        // Should the prompt end here, its rows come on top.
        let ending = self.cost.logits(sequence.rows().min(rows));
        let left = allowed - self.cost.predict_filled(plan.work) - ending;
        self.cost.tokens_within(left, sequence.start(), sequence.rows_each())
    }

    /// Tokens whose products are computed in any case, to fill the step's size; none if the attention and logits of what the candidate
    /// takes of them cost much. Candidates share what the step may grow by as they share the tokens.
    fn filling(&self, plan: &Plan, sequence: &Sequence, sizes: StepSizes) -> usize {
        let room = sizes.computed(plan.work.tokens) - plan.work.tokens;
        let tokens = room.min(sequence.pending());
        let attention = self.cost.attention(Work::chunk(sequence.start(), tokens, 0));
        let logits = self.cost.logits(sequence.rows() + tokens * sequence.rows_each());
        let share = FILLING * tokens as f64 / room.max(1) as f64;
        if attention + logits <= share * self.cost.predict(plan.work) { room } else { 0 }
    }

    /// A chunk of a prompt that nobody streams beside takes the rest of it along if that is not worth a step of its own, and costs less
    /// than one.
    fn with_rest(&self, start: usize, tokens: usize, most: usize) -> usize {
        let rest = most - tokens;
        let predict = |start, tokens| self.cost.predict(Work::chunk(start, tokens, 0));
        let (whole, end) = (predict(start, most), start + tokens);
        let dear = predict(end, 0) > WORTHWHILE * whole;
        let is_small = rest * REST <= tokens || (rest <= tokens && dear);
        if is_small && whole <= predict(start, tokens) + predict(end, rest) { most } else { tokens }
    }

    /// Nobody can go on for want of blocks: whoever came first among the most urgent gets those of the others.
    pub(super) fn plan_senior(&mut self, roster: &mut Roster, now: Duration, plan: &mut Plan) {
        let goes_on = |slot: Slot| {
            let sequence = roster.get(slot);
            sequence.in_flight.is_some() || sequence.fetching.is_some()
        };
        if roster.everyone().any(goes_on) {
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
        let gained = sequence.adopt_cached(pool, &limits);
        let sequence = roster.get(slot);
        let alone = self.pace.allowed(self.judging(roster, now), sequence, Beside::default());
        let most = match self.chunk(plan, sequence, alone.unwrap_or(f64::INFINITY), &limits) {
            Portion::Of(tokens) => tokens,
            Portion::NotWorthwhile | Portion::NoTime => 1,
        };
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

/// The number of tokens that gives a step of one of these sizes with `before` others: where sizes are computed whole the largest one of
/// at most `tokens`, else the closest one, unless that changes much.
fn to_size(tokens: usize, before: usize, sizes: StepSizes) -> usize {
    let all = before + tokens;
    let less = all - sizes.up_to(all);
    if let StepSizes::Listed(_) = sizes {
        return tokens.saturating_sub(less);
    }
    let more = if less == 0 { 0 } else { sizes.above(all) - all };
    let change = less.min(more);
    match change * 4 > tokens {
        true => tokens,
        false if less <= more => tokens - less,
        false => tokens + more,
    }
}

/// A candidate for a part of the step.
#[derive(Clone, Copy, Debug)]
struct Prompt {
    slot: Slot,
    /// Whether it has no place in the batch yet.
    waits: bool,
    now: Duration,
    beside: Beside,
}

/// How many tokens a candidate gets.
enum Portion {
    /// So many.
    Of(usize),
    /// The rest of the step's size would be computed for few of them.
    NotWorthwhile,
    /// The step is full.
    NoTime,
}

/// What became of a candidate.
enum Placing {
    /// It is part of the step.
    Placed,
    /// It waits for blocks from a lower tier.
    Fetched,
    /// It waits for blocks that come for another one, or for a step that is its turn.
    Later,
    /// What it would get is not worth computing; a shorter one may fit.
    PassedOver,
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
    let prefill = !sequence.is_decoding();
    plan.push(Planned { rows, prefill, ..Planned::of(sequence, slot, tokens) });
}

/// The first time it is planned, what the cache saved is the request's; later it is only getting back its own.
fn note_cached(sequence: &mut Sequence, gained: usize, plan: &mut Plan) {
    plan.cached_tokens += gained;
    if sequence.preemptions == 0 && sequence.epoch == 0 {
        sequence.cached += gained;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_beside_others_ends_at_a_size_that_is_computed_whole() {
        let sizes = StepSizes::Listed(&[64, 128, 4096, 4608, 8192]);
        assert_eq!([4607, 4200, 4096].map(|tokens| to_size(tokens, 0, sizes)), [4096; 3]);
        assert_eq!(to_size(4500, 40, sizes), 4056, "with what is there already");
        assert_eq!([40, 63].map(|tokens| to_size(tokens, 64, sizes)), [0; 2], "nothing fits");
    }

    #[test]
    fn a_chunk_is_rounded_to_the_nearest_tile_unless_that_changes_much() {
        let sizes = StepSizes::Multiples(64);
        assert_eq!([4500, 4540, 4480].map(|tokens| to_size(tokens, 0, sizes)), [4480, 4544, 4480]);
        assert_eq!(to_size(4500, 40, sizes), 4504, "with what is there already");
        assert_eq!(to_size(40, 60, sizes), 40, "28 tokens more would be nearly as many again");
    }
}
