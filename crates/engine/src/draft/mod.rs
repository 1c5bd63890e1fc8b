//! Speculative decoding: tokens that may follow are computed beside the next one, and kept as far as they are right.
//!
//! ```text
//! chunk     | last chosen | d1 | d2 | d3 |      drafted tokens ride behind the pending ones
//! rows      |      r0     | r1 | r2 | r3 |      each position is sampled as if it were reached alone
//! kept        r0, and r1 if r0 = d1, and r2 if r1 = d2 ...
//! ```
//! Random numbers depend on the seed and the position only, and a row's bits do not depend on the batch. What is kept is
//! therefore what the sequence would have said without drafts, bit for bit: a wrong draft costs time, never text.
//!
//! # Layout
//! - [`lookup`], on [`index`] and [`text`]: drafts from what the prompt or the answer said before.
//! - [`Drafter`]: the seam for anything else that can draft, a smaller model for one ([`model`], [`reader`]).
//! - [`depth`]: how many drafts are worth their time, from how often they were right lately ([`acceptance`]) and from what a
//!   row costs in this batch.
//! - [`drafting`]: a sequence's own part; [`speculator`]: all of it together, once per step.

mod acceptance;
mod depth;
mod drafting;
mod index;
mod lookup;
mod model;
mod reader;
mod speculator;
mod text;

use std::ops::Range;

use crate::roster::Roster;
use crate::sequence::{Sequence, Slot};
pub use depth::DEEPEST;
pub use drafting::{DraftTotals, Drafting, Forced};
pub use index::BYTES_PER_TOKEN;
pub use lookup::Quotable;
pub use model::{DraftModel, Mismatch};
pub(crate) use speculator::{Conditions, Speculator};

/// Proposes what may follow.
pub trait Drafter: Send {
    /// Takes in what sequences say, for about so many seconds at most; called before every step.
    fn read(&mut self, roster: &Roster, seconds: f64) {
        let _ = (roster, seconds);
    }

    /// Adds a proposal for each sequence that it has one for.
    fn draft(&mut self, wanted: &mut dyn Iterator<Item = Wanted<'_>>, proposals: &mut Proposals);

    /// Seconds that one more token takes for each of so many sequences.
    fn pass(&self, sequences: usize) -> f64;

    /// The sequence left for good.
    fn forget(&mut self, slot: Slot) {
        let _ = slot;
    }
}

/// A sequence that a proposal is wanted for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Its slot.
    pub slot: Slot,
    /// The sequence.
    pub sequence: &'a Sequence,
    /// Most tokens to propose.
    pub most: usize,
}

/// How far a proposal can be trusted; how often it is right is learnt for each confidence apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Confidence(u8);

impl Confidence {
    /// How many there are.
    pub const COUNT: usize = 6;

    /// Of what a [`Drafter`] proposes.
    pub const DRAFTER: Self = Self(5);

    /// By how many tokens before the proposal agree.
    pub fn of_match(length: usize) -> Self {
        Self(match length {
            0..=1 => 0,
            2 => 1,
            3..=4 => 2,
            5..=8 => 3,
            _ => 4,
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

    fn iter(&self) -> impl Iterator<Item = (Slot, &[u32])> {
        self.proposals.iter().map(|Proposal { slot, tokens }| (*slot, &self.tokens[tokens.clone()]))
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
    UpTo(usize),
    /// All that is proposed, up to so many tokens: for tests.
    Always(usize),
}

impl Default for Speculation {
    fn default() -> Self {
        Self::UpTo(DEEPEST)
    }
}

impl Speculation {
    /// Most tokens per sequence and step.
    fn most(self) -> usize {
        match self {
            Self::Off => 0,
            Self::UpTo(most) | Self::Always(most) => most,
        }
    }
}
