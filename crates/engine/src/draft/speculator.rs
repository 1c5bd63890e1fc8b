//! Decides once per step what is drafted for whom.
//!
//! ```text
//! judge      what was proposed for the last step is compared with what was said
//! look up    proposes what followed the same words before: next to free, so it is judged even where it is not computed
//! weigh      how deep each sequence is drafted for, by what that brings
//! ask        the drafter, for all sequences that it is right for more often, if its passes bring more than lookup
//! guide      drafts that a grammar forbids are cut, tokens that it forces are put between
//! ```

use super::acceptance::Experience;
use super::depth::Yield;
use super::{Confidence, Drafter, Drafting, Proposals, Speculation, Wanted};
use crate::cost::{CostModel, Work};
use crate::roster::Roster;
use crate::scheduler::Pace;
use crate::sequence::{Sequence, Slot};

/// Steps between two tries of a drafter that costs time and was not worth it; all sequences try it at once, because a pass for
/// all takes hardly longer than one for a single one.
const RETRY: u64 = 64;

/// What lookup found is preferred if it is right this often, as a share of how often the drafter is: it costs no pass.
const PREFERRED: f64 = 0.9;

/// What a drafted token costs in looks at its grammar: one when it is proposed, one for its row's mask, one when it is kept, and
/// as much again and more for moving the guide there and back. Measured: with less, JSON at 4 and more streams got slower.
const GUIDED: f64 = 8.0;

/// Tokens that a grammar may add to the drafts of a sequence: as many as the keys of JSON take.
const FORCED: usize = 16;

/// Drafts for all sequences of an engine.
pub(crate) struct Speculator {
    drafter: Option<Box<dyn Drafter>>,
    speculation: Speculation,
    experience: Experience,
    proposals: Proposals,
    /// Chances of one step's sequences. Kept and refilled.
    chances: Vec<f64>,
    /// Steps drafted for.
    steps: u64,
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
    /// Seconds that a grammar takes for one.
    guiding: f64,
    /// Most drafted tokens of all sequences together.
    left: usize,
}

impl Speculator {
    pub(crate) fn new(drafter: Option<Box<dyn Drafter>>, speculation: Speculation) -> Self {
        Self {
            drafter,
            speculation,
            experience: Experience::default(),
            proposals: Proposals::default(),
            chances: Vec::new(),
            steps: 0,
        }
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
        self.steps += 1;
        let start = self.weigh(roster, conditions);
        let mut weighing = start;
        for index in 0..roster.running().len() {
            let sequence = roster.get_mut(roster.running()[index]);
            if sequence.in_flight.is_none() {
                self.judge(sequence);
                self.quote(sequence, &mut weighing);
            }
        }
        if self.drafter.is_some() {
            self.ask(roster, start, weighing.expected, conditions.pace);
        }
        for index in 0..roster.running().len() {
            guide(roster.get_mut(roster.running()[index]));
        }
    }

    /// Compares what was proposed with what was said.
    fn judge(&mut self, sequence: &mut Sequence) {
        let Drafting { acceptance, proposed, confidence, known, forced, .. } = &mut sequence.drafting;
        for (draft, proposed) in proposed.iter().enumerate().take(sequence.tokens.len() - *known) {
            let right = *proposed == sequence.tokens.get(*known + draft);
            // What a grammar forces says nothing about who proposed it.
            if !forced.has(draft) {
                self.experience.judge(acceptance, *confidence, right);
            }
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
            return Weighing { expected, row: 0.0, guiding: 0.0, left: usize::MAX };
        }
        let chunk = |slot: &Slot| {
            let sequence = roster.get(*slot);
            Work::chunk(sequence.start(), sequence.pending(), 1)
        };
        let work = roster.running().iter().map(chunk).fold(Work::default(), Work::and);
        let Conditions { cost, pace, guiding } = conditions;
        let seconds = cost.predict(work);
        let streams = roster.running().len();
        let context = work.reads / streams.max(1) as u64;
        let one_more = Work { tokens: 1, rows: 1, pairs: context, reads: 1 };
        let row = cost.marginal(one_more).max(f64::MIN_POSITIVE);
        // Prompts that wait for the step's time have a better use for it.
        let is_stream = |slot: &Slot| roster.get(*slot).is_decoding();
        let idle = roster.waiting().is_empty() && roster.running().iter().all(is_stream);
        let left = if idle { ((pace.beside(seconds) - seconds) / row) as usize } else { 0 };
        let guiding = GUIDED * guiding;
        Weighing { expected: Yield::new(streams, seconds), row, guiding, left }
    }

    /// Proposes what stands in the text before, and how much of it is computed.
    fn quote(&self, sequence: &mut Sequence, weighing: &mut Weighing) {
        let most = room(sequence).min(self.speculation.most());
        if most == 0 {
            return;
        }
        look_up(sequence, most);
        let considered = self.consider_quote(sequence, weighing);
        sequence.drafting.depth = considered.depth;
        weighing.accept(considered);
    }

    fn consider_quote(&self, sequence: &Sequence, weighing: &Weighing) -> Considered {
        let drafting = &sequence.drafting;
        let chance = self.experience.chance(&drafting.acceptance, drafting.confidence);
        weighing.consider(chance, weighing.row_of(sequence), drafting.proposed.len().min(weighing.left))
    }

    /// Has the drafter propose where it is right more often than lookup, if that brings more; `quoted` is what the step gives
    /// without it. Now and then it is tried even if it does not.
    fn ask(&mut self, roster: &mut Roster, start: Weighing, quoted: Yield, pace: Pace) {
        let Some(drafter) = &mut self.drafter else { return };
        drafter.read(roster, pace.reading());
        let depth = self.depth_of_drafter(roster, start, quoted);
        let retry = self.steps.is_multiple_of(RETRY) && start.left > 0;
        let depth = depth.max(usize::from(retry));
        let Some(drafter) = &mut self.drafter else { return };
        let experience = &self.experience;
        let wanted = roster.running().iter().filter_map(|slot| {
            let sequence = roster.get(*slot);
            let most = if prefers_drafter(experience, sequence) { depth.min(room(sequence)) } else { 0 };
            (most > 0).then_some(Wanted { slot: *slot, sequence, most })
        });
        self.proposals.clear();
        drafter.draft(&mut { wanted }, &mut self.proposals);
        for (slot, tokens) in self.proposals.iter() {
            let sequence = roster.get_mut(slot);
            let known = sequence.tokens.len();
            sequence.drafting.propose(tokens, known);
        }
    }

    /// How deep the drafter drafts for all sequences that prefer it; 0 if lookup alone brings more.
    fn depth_of_drafter(&mut self, roster: &Roster, start: Weighing, quoted: Yield) -> usize {
        if let Speculation::Always(most) = self.speculation {
            return most;
        }
        let Some(drafter) = &self.drafter else { return 0 };
        let mut weighing = start;
        let (mut chances, mut row) = (std::mem::take(&mut self.chances), 0.0);
        chances.clear();
        for slot in roster.running() {
            let sequence = roster.get(*slot);
            if prefers_drafter(&self.experience, sequence) {
                chances.push(self.experience.chance(&sequence.drafting.acceptance, Confidence::DRAFTER));
                row += weighing.row_of(sequence);
            } else if sequence.drafting.depth > 0 {
                weighing.accept(self.consider_quote(sequence, &weighing));
            }
        }
        let most = self.speculation.most().min(weighing.left / chances.len().max(1));
        let depth = weighing.expected.add_together(&chances, row + drafter.pass(chances.len()), most);
        self.chances = chances;
        if weighing.expected.rate() > quoted.rate() { depth } else { 0 }
    }
}

/// Whether the drafter is right more often than what lookup found.
fn prefers_drafter(experience: &Experience, sequence: &Sequence) -> bool {
    if room(sequence) == 0 {
        return false;
    }
    let drafting = &sequence.drafting;
    let chance = |confidence| experience.chance(&drafting.acceptance, confidence);
    drafting.proposed.is_empty() || chance(drafting.confidence) < PREFERRED * chance(Confidence::DRAFTER)
}

/// A depth, and what the step would give with it.
#[derive(Clone, Copy, Debug)]
struct Considered {
    depth: usize,
    expected: Yield,
}

impl Weighing {
    /// Seconds of a drafted token of this sequence.
    fn row_of(&self, sequence: &Sequence) -> f64 {
        self.row + if sequence.guidance.is_free() { 0.0 } else { self.guiding }
    }

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
    (drafting.confidence, drafting.source) = lookup.propose(&ticket.quotable, tokens, most, proposed);
    drafting.known = tokens.len();
}

/// Leaves of the drafts what the sequence's grammar allows.
fn guide(sequence: &mut Sequence) {
    // Drafts in flight stay as they were launched.
    if sequence.in_flight.is_some() || sequence.guidance.is_free() || sequence.drafting.depth == 0 {
        return;
    }
    let most = room(sequence).min(sequence.drafting.depth + FORCED);
    let Drafting { proposed, depth, forced, .. } = &mut sequence.drafting;
    (*depth, *forced) = sequence.guidance.guide_drafts(proposed, *depth, most);
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
