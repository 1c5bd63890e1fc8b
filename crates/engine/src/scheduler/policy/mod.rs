//! In which order prompts are computed.
//!
//! Running streams always get their next token; a policy decides only who gets what is left of a step. It gives each
//! candidate a score, and the lowest goes first. Classes come before scores, whatever the policy ([`Turns`]).

mod balance;
mod fair;
mod fifo;
mod shortest;
pub mod turns;

use std::time::Duration;

use crate::request::Class;
use crate::sequence::Slot;
pub(super) use turns::Turns;

/// A sequence with tokens to prefill.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Which.
    pub slot: Slot,
    /// How urgent it is.
    pub class: Class,
    /// Its request's number: the order of submission.
    pub number: u64,
    /// Since its submission.
    pub waited: Duration,
    /// Tokens yet to be computed.
    pub remaining: usize,
    /// Tokens known.
    pub len: usize,
    /// Tokens that its client has received beyond its share; negative if it received less.
    pub excess: f64,
}

/// What the policy may know about the rest.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// Tokens a second that this machine prefills.
    pub pace: f64,
    /// Whether this is one of the steps in which waiting counts; every second one is.
    pub seniors_first: bool,
    /// Mean length of the running sequences; 0 when there are none.
    pub mean_len: f64,
}

/// An order of candidates.
pub trait Policy: Send {
    /// Whose score is lowest goes first; equal scores go by submission.
    fn score(&self, candidate: &Candidate, around: &Surroundings) -> f64;
}

/// The policies there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyKind {
    /// Short prompts first, with credit for waiting and fairness between clients.
    #[default]
    Fair,
    /// In order of submission.
    Fifo,
    /// Fewest remaining tokens first, come what may.
    Shortest,
    /// Lengths close to those that run first.
    Balance,
}

impl PolicyKind {
    /// All policies.
    pub const ALL: [PolicyKind; 4] =
        [PolicyKind::Fair, PolicyKind::Fifo, PolicyKind::Shortest, PolicyKind::Balance];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::Fair => "fair",
            PolicyKind::Fifo => "fifo",
            PolicyKind::Shortest => "shortest",
            PolicyKind::Balance => "balance",
        }
    }

    pub(crate) fn policy(self) -> Box<dyn Policy> {
        match self {
            PolicyKind::Fair => Box::new(fair::Fair),
            PolicyKind::Fifo => Box::new(fifo::Fifo),
            PolicyKind::Shortest => Box::new(shortest::Shortest),
            PolicyKind::Balance => Box::new(balance::Balance),
        }
    }
}

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no policy is named {0:?}; there are fair, fifo, shortest and balance")]
pub struct UnknownPolicy(String);

impl std::str::FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let kind = PolicyKind::ALL.into_iter().find(|kind| kind.name() == name);
        kind.ok_or_else(|| UnknownPolicy(name.into()))
    }
}

/// A candidate's place in the order; the lowest goes first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Its class's place in this step.
    pub(super) rank: usize,
    pub(super) score: f64,
    pub(super) number: u64,
    pub(super) slot: Slot,
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Place {}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_score = self.rank.cmp(&other.rank).then(self.score.total_cmp(&other.score));
        by_score.then(self.number.cmp(&other.number)).then(self.slot.cmp(&other.slot))
    }
}

#[cfg(test)]
mod tests;
