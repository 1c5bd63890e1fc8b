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
    /// Which of these a grammar forces.
    pub(crate) forced: Forced,
    /// Totals so far.
    pub(crate) totals: DraftTotals,
}

/// Which drafts are forced by a grammar: they need no row of logits, because nothing is chosen there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forced(u64);

impl Forced {
    /// Draft `index` is forced. Those beyond what a sequence may have drafted are of no interest.
    pub(crate) fn add(&mut self, index: usize) {
        self.0 |= 1_u64.checked_shl(index as u32).unwrap_or(0);
    }

    /// Whether draft `index` is forced.
    pub(crate) fn has(self, index: usize) -> bool {
        self.0.checked_shr(index as u32).is_some_and(|from| from & 1 == 1)
    }

    /// How many of the first `drafts` are forced.
    pub(crate) fn among(self, drafts: usize) -> usize {
        let first = 1_u64.checked_shl(drafts as u32).map_or(u64::MAX, |end| end - 1);
        (self.0 & first).count_ones() as usize
    }
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
        (self.depth, self.forced) = (0, Forced::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forced_drafts_are_counted_up_to_a_place() {
        let mut forced = Forced::default();
        for index in [1, 2, 63, 64, 500] {
            forced.add(index);
        }
        assert_eq!([0, 1, 2, 3, 63, 64, 65].map(|drafts| forced.among(drafts)), [0, 0, 1, 2, 2, 3, 3]);
        assert_eq!(
            [0, 1, 2, 63, 64, 500].map(|index| forced.has(index)),
            [false, true, true, true, false, false]
        );
    }
}
