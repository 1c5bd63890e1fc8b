//! Decides once per step what is drafted for whom.
//!
//! ```text
//! judge      what was proposed for the last step is compared with what was said
//! look up    proposes what followed the same words before: next to free, so it is judged even where it is not computed
//! weigh      depths, by what they bring; where the drafter brings more, it is asked instead
//! guide      drafts that a grammar forbids are cut, tokens that it forces are put between
//! ```

use super::acceptance::Experience;
use super::depth::Yield;
use super::{Confidence, Drafter, Drafting, Proposals, Speculation, Wanted};
use crate::cost::{CostModel, Work};
use crate::roster::Roster;
use crate::scheduler::Pace;
use crate::sequence::{Sequence, Slot};

/// Tokens of a sequence between two tries of a drafter that costs time and was not worth it.
const RETRY: usize = 64;

/// How often a grammar looks at a drafted token: when it is proposed, for its row's mask, and when it is kept.
const GUIDED: f64 = 3.0;

/// Tokens that a grammar may add to the drafts of a sequence: as many as the keys of JSON take.
const FORCED: usize = 16;

/// Drafts for all sequences of an engine.
pub(crate) struct Speculator {
    drafter: Option<Box<dyn Drafter>>,
    speculation: Speculation,
    experience: Experience,
    proposals: Proposals,
}

/// What the speculator goes by.
#[derive(Clone, Copy)]
pub(crate) struct Conditions<'a> {
    pub(crate) cost: &'a CostModel,
    pub(crate) pace: Pace,
    /// Seconds that a grammar takes for a row.
    pub(crate) guiding: f64,
}

/// What drafts are weighed against in one step.
#[derive(Clone, Copy, Debug)]
struct Weighing {
    expected: Yield,
    /// Seconds of a drafted token from lookup, which is a row of the step.
    row: f64,
    /// Seconds that the drafter takes for one.
    price: f64,
    /// Seconds that a grammar takes for one.
    guiding: f64,
    /// Most drafted tokens of all sequences together.
    left: usize,
}

impl Speculator {
    pub(crate) fn new(drafter: Option<Box<dyn Drafter>>, speculation: Speculation) -> Self {
        Self { drafter, speculation, experience: Experience::default(), proposals: Proposals::default() }
    }

    /// The sequence left for good.
    pub(crate) fn forget(&mut self, slot: Slot) {
        if let Some(drafter) = &mut self.drafter {
            drafter.forget(slot);
        }
    }

    /// Judges what was drafted for the last step, and drafts for the next one.
    pub(crate) fn draft(&mut self, roster: &mut Roster, conditions: Conditions<'_>) {
        if self.speculation == Speculation::Off {
            return;
        }
        if let Some(drafter) = &mut self.drafter {
            drafter.read(roster, conditions.pace.reading());
        }
        let mut weighing = self.weigh(roster, conditions);
        for index in 0..roster.running().len() {
            let sequence = roster.get_mut(roster.running()[index]);
            if sequence.in_flight.is_none() {
                self.judge(sequence);
                self.draft_for(sequence, &mut weighing);
            }
        }
        self.ask_drafter(roster);
    }

    /// Compares what was proposed with what was said.
    fn judge(&mut self, sequence: &mut Sequence) {
        let Drafting { acceptance, proposed, confidence, known, .. } = &mut sequence.drafting;
        for (proposed, position) in proposed.iter().zip(*known..sequence.tokens.len()) {
            let right = *proposed == sequence.tokens.get(position);
            self.experience.judge(acceptance, *confidence, right);
            if !right {
                break;
            }
        }
        sequence.drafting.clear();
    }

    /// What a draft is worth in the next step.
    fn weigh(&self, roster: &Roster, conditions: Conditions<'_>) -> Weighing {
        if let Speculation::Always(_) = self.speculation {
            let expected = Yield::new(1, 1.0);
            return Weighing { expected, row: 0.0, price: 0.0, guiding: 0.0, left: usize::MAX };
        }
        let chunk = |slot: &Slot| {
            let sequence = roster.get(*slot);
            Work::chunk(sequence.start(), sequence.pending(), 1)
        };
        let work = roster.running().iter().map(chunk).fold(Work::default(), Work::and);
        let Conditions { cost, pace, guiding } = conditions;
        let seconds = cost.predict(work);
        let row = cost.marginal(Work { tokens: 1, rows: 1, ..Work::default() }).max(f64::MIN_POSITIVE);
        let streams = roster.running().len();
        let price = self.drafter.as_ref().map_or(0.0, |drafter| drafter.price(streams));
        // Prompts that wait for the step's time have a better use for it.
        let is_stream = |slot: &Slot| roster.get(*slot).is_decoding();
        let idle = roster.waiting().is_empty() && roster.running().iter().all(is_stream);
        let left = if idle { ((pace.beside(seconds) - seconds) / row) as usize } else { 0 };
        let guiding = GUIDED * guiding;
        Weighing { expected: Yield::new(streams, seconds), row, price, guiding, left }
    }

    fn draft_for(&self, sequence: &mut Sequence, weighing: &mut Weighing) {
        let most = room(sequence).min(self.speculation.most());
        if most == 0 {
            return;
        }
        look_up(sequence, most);
        let most = most.min(weighing.left);
        let row = weighing.row + if sequence.guidance.is_free() { 0.0 } else { weighing.guiding };
        let drafting = &mut sequence.drafting;
        let chance = |confidence| self.experience.chance(&drafting.acceptance, confidence);
        let quoted = weighing.consider(chance(drafting.confidence), row, drafting.proposed.len().min(most));
        let asked = weighing.consider(chance(Confidence::DRAFTER), row + weighing.price, most);
        if self.drafter.is_some() && asked.rate() > quoted.rate() {
            drafting.clear();
            drafting.asked = asked.depth;
            weighing.accept(asked);
        } else {
            drafting.depth = quoted.depth;
            weighing.accept(quoted);
            guide(sequence);
        }
    }

    /// Has the drafter propose where it brings more than lookup, and now and then where it does not.
    fn ask_drafter(&mut self, roster: &mut Roster) {
        let Some(drafter) = &mut self.drafter else { return };
        let wanted = roster.running().iter().filter_map(|slot| {
            let sequence = roster.get(*slot);
            let retried = sequence.drafting.is_empty() && sequence.generated().is_multiple_of(RETRY);
            let most = sequence.drafting.asked.max(usize::from(retried)).min(room(sequence));
            (most > 0).then_some(Wanted { slot: *slot, sequence, most })
        });
        self.proposals.clear();
        drafter.draft(&mut { wanted }, &mut self.proposals);
        for (slot, tokens) in self.proposals.iter() {
            let sequence = roster.get_mut(slot);
            let known = sequence.tokens.len();
            sequence.drafting.propose(tokens, Confidence::DRAFTER, known);
            sequence.drafting.depth = tokens.len();
            guide(sequence);
        }
    }
}

/// A depth, and what the step would give with it.
#[derive(Clone, Copy, Debug)]
struct Considered {
    depth: usize,
    expected: Yield,
}

impl Considered {
    fn rate(self) -> f64 {
        self.expected.rate()
    }
}

impl Weighing {
    fn consider(&self, chance: f64, each: f64, most: usize) -> Considered {
        let mut expected = self.expected;
        let depth = expected.add(chance, each, most);
        Considered { depth, expected }
    }

    fn accept(&mut self, considered: Considered) {
        self.expected = considered.expected;
        self.left -= considered.depth;
    }
}

/// Proposes what followed the same words before.
fn look_up(sequence: &mut Sequence, most: usize) {
    let Sequence { drafting, tokens, ticket, .. } = sequence;
    let Drafting { lookup, proposed, .. } = drafting;
    drafting.confidence = lookup.propose(&ticket.quotable, tokens, most, proposed);
    drafting.known = tokens.len();
}

/// Leaves of the drafts what the sequence's grammar allows.
fn guide(sequence: &mut Sequence) {
    if sequence.guidance.is_free() || sequence.drafting.depth == 0 {
        return;
    }
    let most = room(sequence).min(sequence.drafting.depth + FORCED);
    let Drafting { proposed, depth, .. } = &mut sequence.drafting;
    *depth = sequence.guidance.guide_drafts(proposed, *depth, most);
}

/// Tokens that may be drafted for a sequence: none where its next token is not the model's own choice alone, and none in
/// place of the last token that fits, which is sampled.
fn room(sequence: &Sequence) -> usize {
    if sequence.in_flight.is_some() || !sequence.is_draftable() {
        return 0;
    }
    let left = sequence.ticket.max_len - sequence.len();
    let room = left.saturating_sub(1 + sequence.landing());
    sequence.drafting.most.map_or(room, |most| room.min(most))
}
