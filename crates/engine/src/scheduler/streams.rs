//! The first part of a step: the next token of everyone who streams.
//!
//! ```text
//! most urgent class      all of its streams, in the order of their submission
//! less urgent classes    those that waited longest, while the step stays within its time, and leaving a quarter of
//!                        its tokens to prompts that are more urgent
//! ```
//! The most urgent class is that of the most urgent sequence here, or of one that came lately: the next may come any
//! moment, and would wait for the end of the step. Every class gets a step in two seconds at least ([`Turns`](super::Turns)).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::policy::Place;
use super::{Plan, Planned, Scheduler, memory};
use crate::cost::Work;
use crate::request::Class;
use crate::roster::Roster;
use crate::sequence::{Sequence, Slot};

/// Forced tokens that a stream may add to a step: as many as the keys of JSON take, few enough for a long forced text not
/// to hold up the other streams.
const FORCED_AT_ONCE: usize = 16;

/// Share of a step's tokens that streams leave to more urgent prompts: one of so many.
const LEFT_TO_PROMPTS: usize = 4;

/// What there is for streams that are less urgent than somebody else.
#[derive(Clone, Copy, Debug)]
struct Optional {
    /// The most urgent class here or expected; its own streams are not optional.
    urgent: Class,
    /// Most tokens of the step, these included.
    tokens: usize,
    /// Whether prompts of the most urgent class wait for the step's time.
    prompts: bool,
}

impl Scheduler {
    /// Plans the streams; `order` has the prompts of this step.
    pub(super) fn plan_streams(
        &mut self,
        roster: &mut Roster,
        now: Duration,
        order: &BinaryHeap<Reverse<Place>>,
        plan: &mut Plan,
    ) {
        self.collect_streams(roster);
        let Some(optional) = self.optional(roster, order, now) else { return };
        self.sort_streams(roster, optional.urgent, now);
        let streams = std::mem::take(&mut self.streams);
        let limits = roster.limits();
        let capacity = limits.step_tokens.min(limits.step_rows);
        // Seconds that the step may take with optional streams, once all others are planned.
        let mut allowed = None;
        for (index, slot) in streams.iter().enumerate() {
            let sequence = roster.get(*slot);
            // Someone before it may have taken its blocks.
            if !sequence.is_decoding() {
                continue;
            }
            let may_wait = sequence.class() > optional.urgent;
            let most = if may_wait { optional.tokens } else { capacity };
            let tokens = tokens(sequence, plan, most, streams.len() - 1 - index);
            if may_wait && tokens > 0 {
                let more = Work::chunk(sequence.start(), tokens, tokens);
                let allowed = *allowed.get_or_insert_with(|| self.time_with(plan, optional));
                // Whatever it takes, one stream goes on where nobody else does.
                let may_be_first = plan.is_empty() && !optional.prompts;
                // By the tokens, not by the size that they open: others will fill it.
                if self.cost.predict_filled(plan.work.and(more)) > allowed && !may_be_first {
                    continue;
                }
            }
            let class = sequence.class();
            if place(roster, plan, *slot, tokens, now) {
                self.stream_turns.took(class, now);
            }
        }
        self.streams = streams;
    }

    /// Streams by urgency, and in the order of their submission.
    fn collect_streams(&mut self, roster: &Roster) {
        let streams = |slot: &&Slot| {
            let sequence = roster.get(**slot);
            sequence.is_decoding() && sequence.is_plannable()
        };
        self.streams.clear();
        self.streams.extend(roster.running().iter().filter(streams));
    }

    /// What there is for optional streams; `None` if nobody streams.
    fn optional(
        &self,
        roster: &Roster,
        order: &BinaryHeap<Reverse<Place>>,
        now: Duration,
    ) -> Option<Optional> {
        let class = |slot: Slot| roster.get(slot).class();
        let streams = class(*self.streams.first()?);
        let prompts = order.iter().map(|Reverse(place)| class(place.slot)).min();
        let urgent = [prompts, self.expected(now)].into_iter().flatten().fold(streams, Class::min);
        let limits = roster.limits();
        let capacity = limits.step_tokens.min(limits.step_rows);
        let waiting = prompts == Some(urgent);
        let left = if waiting { (capacity / LEFT_TO_PROMPTS).max(1) } else { 0 };
        Some(Optional { urgent, tokens: capacity - left, prompts: waiting })
    }

    /// Sorts the streams that are less urgent than `urgent` into the order they are served.
    fn sort_streams(&mut self, roster: &Roster, urgent: Class, now: Duration) {
        let class = |slot: &Slot| roster.get(*slot).class();
        for absent in
            Class::ALL.into_iter().filter(|one| !self.streams.iter().any(|slot| class(slot) == *one))
        {
            self.stream_turns.took(absent, now);
        }
        let turns = self.stream_turns;
        let may_wait = self.streams.partition_point(|slot| class(slot) <= urgent);
        self.streams[may_wait..].sort_unstable_by_key(|slot| {
            let sequence = roster.get(*slot);
            let rank = turns.rank(sequence.class(), now);
            (rank, sequence.last_token, sequence.ticket.number, sequence.index)
        });
    }

    /// Seconds that a step may take with optional streams beside what is planned.
    fn time_with(&self, plan: &Plan, optional: Optional) -> f64 {
        let unavoidable = self.cost.predict(plan.work);
        if optional.prompts {
            self.pace.slightly_beyond(unavoidable)
        } else if plan.is_empty() {
            self.pace.expecting(unavoidable, 0.0)
        } else {
            self.pace.behind(unavoidable)
        }
    }
}

/// Tokens that a stream gets: its next one, what its grammar forced and what was drafted for it, as far as there is room
/// for those after it.
fn tokens(sequence: &Sequence, plan: &Plan, most: usize, after: usize) -> usize {
    let room = most.saturating_sub(plan.work.tokens.max(plan.work.rows));
    let forced = (sequence.pending() - 1).min(FORCED_AT_ONCE);
    (1 + forced + sequence.drafts().len()).min(room.saturating_sub(after).max(1)).min(room)
}

/// Adds a stream's tokens to the step if there are blocks for them, or for one of them, and says whether.
fn place(roster: &mut Roster, plan: &mut Plan, slot: Slot, tokens: usize, now: Duration) -> bool {
    let fewer = [tokens, tokens.min(1)];
    let claimed =
        fewer.into_iter().find(|tokens| *tokens > 0 && memory::claim(roster, plan, slot, *tokens, now));
    let Some(tokens) = claimed else { return false };
    let sequence = roster.get(slot);
    let drafted = tokens.saturating_sub(sequence.pending());
    let rows = sequence.rows_of(tokens, 1 + drafted);
    plan.push(Planned { drafted, rows, ..Planned::of(sequence, slot, tokens) });
    true
}
