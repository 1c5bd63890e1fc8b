//! Guesses at what sequences will say, computed beside their next tokens and kept as far as they are right.
//!
//! ```text
//! chunk     | last chosen | d1 | d2 | d3 |      drafted tokens ride behind the pending one
//! rows      |      r0     | r1 | r2 | r3 |      each position is sampled as if it were reached alone
//! kept        r0, and r1 if r0 = d1, and r2 if r1 = d2 ...
//! ```
//! What is kept is what the sequence would have said without drafts, bit for bit: a wrong guess costs time, never text.
//!
//! What stands in the text before is proposed first ([`lookup`]), then what a [`Drafter`] says. How many of the proposed
//! tokens are computed is decided here ([`depth`]), from how often they were right lately ([`acceptance`]) and from what a
//! row more costs in this batch.

mod acceptance;
mod depth;
mod index;
mod lookup;

use std::ops::Range;

use crate::cost::{CostModel, Work};
use crate::roster::Roster;
use crate::scheduler::Pace;
use crate::sequence::{Sequence, Slot};
use crate::tokens::Tokens;
use acceptance::{Acceptance, Experience};
pub use depth::DEEPEST;
use depth::Worth;
pub use index::BYTES_PER_TOKEN;
use lookup::Lookup;

/// Proposes what may follow.
pub trait Drafter: Send {
    /// Adds a proposal for each sequence that it has one for; called before a step is planned.
    fn draft(&mut self, wanted: &mut dyn Iterator<Item = Wanted<'_>>, proposals: &mut Proposals);

    /// The sequence left for good.
    fn forget(&mut self, slot: Slot) {
        let _ = slot;
    }

    /// Seconds that a proposed token costs beyond its row.
    fn price(&self) -> f64;
}

/// A sequence that a proposal is wanted for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Which.
    pub slot: Slot,
    /// Itself.
    pub sequence: &'a Sequence,
    /// Most tokens to propose.
    pub most: usize,
}

/// How much a drafter trusts a proposal; chances are learnt for each apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Confidence(u8);

impl Confidence {
    /// How many there are.
    pub const COUNT: usize = 5;

    /// Of a draft model, whatever it says.
    pub const MODEL: Self = Self(4);

    /// By the number of tokens before it that agree.
    pub fn of_agreement(tokens: usize) -> Self {
        Self(match tokens {
            0..=2 => 0,
            3..=4 => 1,
            5..=8 => 2,
            _ => 3,
        })
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Proposals of one step. Kept and refilled.
#[derive(Debug, Default)]
pub struct Proposals {
    tokens: Vec<u32>,
    proposals: Vec<Proposal>,
}

#[derive(Clone, Debug)]
struct Proposal {
    slot: Slot,
    tokens: Range<usize>,
}

impl Proposals {
    /// Adds a proposal.
    pub fn push(&mut self, slot: Slot, tokens: impl IntoIterator<Item = u32>) {
        let start = self.tokens.len();
        self.tokens.extend(tokens);
        let tokens = start..self.tokens.len();
        if !tokens.is_empty() {
            self.proposals.push(Proposal { slot, tokens });
        }
    }

    fn clear(&mut self) {
        self.tokens.clear();
        self.proposals.clear();
    }
}

/// How much an engine drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speculation {
    /// Nothing.
    Off,
    /// Up to so many tokens per sequence and step, as far as they are worth their time.
    Worthwhile(usize),
    /// All that is proposed, up to so many tokens: for tests.
    Always(usize),
}

impl Default for Speculation {
    fn default() -> Self {
        Self::Worthwhile(DEEPEST)
    }
}

impl Speculation {
    fn most(self) -> usize {
        match self {
            Self::Off => 0,
            Self::Worthwhile(most) | Self::Always(most) => most,
        }
    }
}

/// A sequence's part in it.
#[derive(Debug, Default)]
pub struct Drafting {
    /// Most tokens to draft, where the request says so.
    most: Option<usize>,
    lookup: Option<Lookup>,
    acceptance: Acceptance,
    proposed: Vec<u32>,
    confidence: Confidence,
    /// Tokens of the sequence when that was proposed.
    known: usize,
    /// How many of the proposed tokens are to be computed.
    depth: usize,
    /// Tokens drafted so far.
    pub(crate) drafted: usize,
    /// Of these, those that were right.
    pub(crate) accepted: usize,
}

impl Drafting {
    /// As the request says: most tokens to draft, and what the client expects as its answer.
    pub(crate) fn new(most: Option<usize>, prediction: &[u32], tokens: &Tokens) -> Self {
        let lookup = (most != Some(0)).then(|| Lookup::new(prediction.into(), tokens));
        Self { most, lookup, proposed: Vec::with_capacity(DEEPEST), ..Self::default() }
    }

    /// Tokens to compute behind the pending one.
    pub fn drafts(&self) -> &[u32] {
        &self.proposed[..self.depth]
    }

    fn clear(&mut self) {
        self.proposed.clear();
        self.depth = 0;
    }
}

/// Tokens of a sequence between two tries of a drafter that costs time and was not worth it.
const TRIED: usize = 64;

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

    /// Judges what was proposed before, and proposes for the next step.
    pub(crate) fn draft(&mut self, roster: &mut Roster, conditions: Conditions<'_>) {
        if self.speculation == Speculation::Off {
            return;
        }
        let weighing = self.weigh(roster, conditions);
        let mut left = weighing.tokens;
        for index in 0..roster.running().len() {
            let slot = roster.running()[index];
            let sequence = roster.get_mut(slot);
            if sequence.in_flight.is_some() {
                continue;
            }
            self.judge(sequence);
            self.look_up(sequence);
            left -= self.choose_depth(sequence, weighing.worth, left);
        }
        self.ask_drafter(roster, weighing, left);
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

    /// What stands in the text before costs nothing to propose, and is judged even if it is not worth a row.
    fn look_up(&self, sequence: &mut Sequence) {
        let most = room(sequence).min(self.speculation.most());
        let Drafting { lookup: Some(lookup), proposed, confidence, known, .. } = &mut sequence.drafting else {
            return;
        };
        if most > 0 {
            *confidence = lookup.propose(&sequence.tokens, most, proposed);
            *known = sequence.tokens.len();
        }
    }

    /// How many of the proposed tokens are computed, of up to `most`.
    fn choose_depth(&self, sequence: &mut Sequence, worth: Worth, most: usize) -> usize {
        let drafting = &mut sequence.drafting;
        let chance = self.experience.chance(&drafting.acceptance, drafting.confidence);
        drafting.depth = worth.depth(chance, drafting.proposed.len().min(most));
        drafting.depth
    }

    /// What a draft is worth in the next step.
    fn weigh(&self, roster: &Roster, conditions: Conditions<'_>) -> Weighing {
        if let Speculation::Always(_) = self.speculation {
            let all = Worth { least: 0.0 };
            return Weighing { worth: all, priced: all, tokens: usize::MAX };
        }
        // Prompts that wait for the step's time have a better use for it.
        let is_stream = |slot: &Slot| roster.get(*slot).is_decoding();
        if !roster.waiting().is_empty() || !roster.running().iter().all(is_stream) {
            return Weighing { worth: Worth::NOTHING, priced: Worth::NOTHING, tokens: 0 };
        }
        let chunk = |slot: &Slot| {
            let sequence = roster.get(*slot);
            Work::chunk(sequence.start(), sequence.pending(), 1)
        };
        let work = roster.running().iter().map(chunk).fold(Work::default(), Work::and);
        let Conditions { cost, pace } = conditions;
        let seconds = cost.predict(work);
        let one_more = work.and(Work { tokens: 1, rows: 1, ..Work::default() });
        let row = (cost.predict(one_more) - seconds).max(1e-9);
        let price = self.drafter.as_ref().map_or(0.0, |drafter| drafter.price());
        let streams = roster.running().len();
        Weighing {
            worth: Worth::new(streams, seconds, row),
            priced: Worth::new(streams, seconds, row + price),
            tokens: ((pace.beside(seconds) - seconds) / row) as usize,
        }
    }

    /// Has the drafter propose for those for whom nothing was found.
    fn ask_drafter(&mut self, roster: &mut Roster, weighing: Weighing, mut left: usize) {
        let Some(drafter) = &mut self.drafter else { return };
        let experience = &self.experience;
        let most = self.speculation.most();
        let wanted = roster.running().iter().filter_map(|slot| {
            let sequence = roster.get(*slot);
            if !sequence.drafting.proposed.is_empty() {
                return None;
            }
            let chance = experience.chance(&sequence.drafting.acceptance, Confidence::MODEL);
            // A drafter that was not worth it is tried now and then.
            let tried = usize::from(sequence.generated().is_multiple_of(TRIED) && left > 0);
            let most = weighing.priced.depth(chance, most).max(tried).min(room(sequence)).min(left);
            (most > 0).then_some(Wanted { slot: *slot, sequence, most })
        });
        self.proposals.clear();
        drafter.draft(&mut { wanted }, &mut self.proposals);
        for proposal in &self.proposals.proposals {
            let sequence = roster.get_mut(proposal.slot);
            let known = sequence.tokens.len();
            let drafting = &mut sequence.drafting;
            drafting.proposed.extend_from_slice(&self.proposals.tokens[proposal.tokens.clone()]);
            (drafting.confidence, drafting.known) = (Confidence::MODEL, known);
            drafting.depth = drafting.proposed.len().min(left);
            left -= drafting.depth;
        }
    }
}

/// What drafts are weighed against in one step.
#[derive(Clone, Copy, Debug)]
struct Weighing {
    /// Of what costs nothing but a row.
    worth: Worth,
    /// Of what the drafter proposes.
    priced: Worth,
    /// Most drafted tokens of all sequences together.
    tokens: usize,
}

/// Tokens that may be drafted for a sequence: none for those whose next token is not the model's own choice alone, and
/// none in place of the last token that fits, which is sampled.
fn room(sequence: &Sequence) -> usize {
    if sequence.in_flight.is_some() || !sequence.is_decoding() || !sequence.is_plain() {
        return 0;
    }
    let room = (sequence.ticket.max_len - sequence.len()).saturating_sub(1);
    sequence.drafting.most.map_or(room, |most| room.min(most))
}
