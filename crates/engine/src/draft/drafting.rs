//! A sequence's part in speculation: what was drafted for it, and how that turned out.

use super::acceptance::Acceptance;
use super::lookup::Lookup;
use super::{Confidence, DEEPEST};

/// The drafts of one sequence.
#[derive(Debug, Default)]
pub struct Drafting {
    /// Most tokens to draft, where the request says so.
    pub(super) most: Option<usize>,
    pub(super) lookup: Lookup,
    pub(super) acceptance: Acceptance,
    /// What may follow the tokens that were known when it was proposed.
    pub(super) proposed: Vec<u32>,
    pub(super) confidence: Confidence,
    pub(super) source: Source,
    /// How many tokens were known then.
    pub(super) known: usize,
    /// How many of the proposed tokens are computed in the next step.
    pub(super) depth: usize,
    /// Totals so far.
    pub(crate) totals: DraftTotals,
}

/// Where a draft comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Source {
    /// The client's prediction of the answer.
    Prediction,
    /// The prompt, the answer so far, or a drafter.
    #[default]
    Other,
}

impl Source {
    /// How many of so many tokens are the client's prediction.
    fn predicted(self, tokens: usize) -> usize {
        if self == Self::Prediction { tokens } else { 0 }
    }
}

/// How much was drafted, and how much of it was right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftTotals {
    /// Steps that had a draft.
    pub drafts: usize,
    /// Tokens that were drafted.
    pub drafted: usize,
    /// Drafted tokens that were right.
    pub accepted: usize,
    /// Of the drafted tokens, those of the client's prediction.
    pub predicted: usize,
    /// Of these, those that were right.
    pub predicted_accepted: usize,
}

impl Drafting {
    /// Drafts up to `most` tokens in a step; `None` leaves it to the engine.
    pub(crate) fn new(most: Option<usize>) -> Self {
        Self { most, proposed: Vec::with_capacity(2 * DEEPEST), ..Self::default() }
    }

    /// Tokens to compute behind the pending ones.
    pub fn drafts(&self) -> &[u32] {
        &self.proposed[..self.depth]
    }

    /// Proposes what the drafter says, all of it to be computed, to follow the `known` tokens of the sequence.
    pub(super) fn propose(&mut self, tokens: &[u32], known: usize) {
        self.proposed.clear();
        self.proposed.extend_from_slice(tokens);
        (self.confidence, self.known, self.depth) = (Confidence::DRAFTER, known, tokens.len());
        self.source = Source::Other;
    }

    /// So many of the drafts are computed in a step.
    pub(crate) fn count_drafted(&mut self, tokens: usize) {
        self.totals.drafts += usize::from(tokens > 0);
        self.totals.drafted += tokens;
        self.totals.predicted += self.source.predicted(tokens);
    }

    /// So many of them were right.
    pub(crate) fn count_accepted(&mut self, tokens: usize) {
        self.totals.accepted += tokens;
        self.totals.predicted_accepted += self.source.predicted(tokens);
    }

    pub(super) fn clear(&mut self) {
        self.proposed.clear();
        self.depth = 0;
    }
}
