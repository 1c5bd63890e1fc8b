//! Which upstream holds which beginning of a prompt, as far as is known from what it was given.
//!
//! ```text
//! hashes of a prompt's blocks     h1    h2    h3    h4         each covers everything before it
//! holders                         A B C A B   A     (unknown)  known: 3 blocks; A holds all of them, B two
//! ```
//! An upstream that was ejected or restarted has forgotten everything: its *epoch* is raised, and what it held in an older
//! one counts no longer. Nothing is asked of the upstream itself: what it threw away is believed to be there, which
//! costs a wrong guess and nothing else.

use super::lru::Lru;
use super::types::UpstreamId;

/// Holders of a block that are remembered: enough for a popular prompt to have a choice, few enough to look at all of them.
const MOST_HOLDERS: usize = 4;

/// An upstream between two restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Which one.
    pub upstream: UpstreamId,
    /// How often it had been lost before.
    pub epoch: u32,
}

/// Holders of a block, the latest first.
#[derive(Debug, Default)]
struct Holders([Option<Holder>; MOST_HOLDERS]);

impl Holders {
    fn add(&mut self, holder: Holder) {
        let same = |known: &Option<Holder>| known.is_some_and(|known| known.upstream == holder.upstream);
        let place = self.0.iter().position(same).unwrap_or(MOST_HOLDERS - 1);
        self.0[..=place].rotate_right(1);
        self.0[0] = Some(holder);
    }

    fn iter(&self) -> impl Iterator<Item = Holder> {
        self.0.iter().flatten().copied()
    }
}

/// Blocks of prompts and who holds them.
#[derive(Debug)]
pub struct Prefixes(Lru<Holders>);

impl Prefixes {
    /// Remembers at most so many blocks.
    pub fn new(blocks: usize) -> Self {
        Self(Lru::new(blocks))
    }

    /// How many blocks of a prompt, from its beginning, anybody ever held.
    pub fn known(&self, prefix: &[u64]) -> usize {
        prefix.iter().take_while(|block| self.0.get(**block).is_some()).count()
    }

    /// Who holds a block, the latest first.
    pub fn holders(&self, block: u64) -> impl Iterator<Item = Holder> {
        self.0.get(block).into_iter().flat_map(Holders::iter)
    }

    /// How many of these blocks, of which all are known, an upstream holds.
    pub fn depth(&self, known: &[u64], holder: Holder) -> usize {
        let holds = |block: &u64| self.holders(*block).any(|other| other == holder);
        known.iter().rposition(holds).map_or(0, |last| last + 1)
    }

    /// An upstream was given a prompt. The first blocks are touched last, so that a beginning is never forgotten before what
    /// follows it.
    pub fn store(&mut self, prefix: &[u64], holder: Holder) {
        for block in prefix.iter().rev() {
            self.0.touch(*block).add(holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(upstream: u32) -> Holder {
        Holder { upstream: UpstreamId(upstream), epoch: 0 }
    }

    #[test]
    fn the_depth_is_the_longest_beginning_that_an_upstream_was_given() {
        let mut prefixes = Prefixes::new(100);
        prefixes.store(&[1, 2, 3], holder(0));
        prefixes.store(&[1, 2], holder(1));
        let known = prefixes.known(&[1, 2, 3, 4]);
        assert_eq!(known, 3);
        let depth = |upstream| prefixes.depth(&[1, 2, 3], holder(upstream));
        assert_eq!([depth(0), depth(1), depth(2)], [3, 2, 0]);
    }

    #[test]
    fn an_older_epoch_holds_nothing_and_is_replaced() {
        let mut prefixes = Prefixes::new(100);
        prefixes.store(&[1], holder(0));
        let restarted = Holder { epoch: 1, ..holder(0) };
        assert_eq!(prefixes.depth(&[1], restarted), 0);
        prefixes.store(&[1], restarted);
        assert_eq!(prefixes.holders(1).collect::<Vec<_>>(), [restarted]);
    }

    #[test]
    fn the_latest_holders_are_remembered() {
        let mut prefixes = Prefixes::new(100);
        for upstream in [0, 1, 2, 3, 4, 1] {
            prefixes.store(&[1], holder(upstream));
        }
        let held: Vec<_> = prefixes.holders(1).map(|holder| holder.upstream.0).collect();
        assert_eq!(held, [1, 4, 3, 2]);
    }

    #[test]
    fn the_end_of_a_prompt_is_forgotten_before_its_beginning() {
        let mut prefixes = Prefixes::new(3);
        prefixes.store(&[1, 2, 3], holder(0));
        prefixes.store(&[9], holder(1));
        assert_eq!(prefixes.known(&[1, 2, 3]), 2);
    }
}
