//! The merge table of a BPE model: which two neighbours become one token, and how early.
//!
//! ```text
//! pairs    [(left, right, merged), ...]   in rank order: the index is the rank
//! slots    [EMPTY, 7, EMPTY, ...]         hash of (left, right) -> rank, linear probing, at most half full
//! ```
//!
//! 48,900 merges take 1.1 MB.

use crate::vocabulary::Vocabulary;
use std::hash::{BuildHasher, RandomState};

/// Pairs of neighbouring tokens in the order in which they are merged.
pub(crate) struct Merges {
    pairs: Vec<[u32; 3]>,
    slots: Vec<u32>,
    hasher: RandomState,
}

const EMPTY: u32 = u32::MAX;

impl Merges {
    /// Takes pairs of token texts in rank order. A pair whose texts or whose result are not tokens can never apply and
    /// is left out; of a repeated pair the later rank counts.
    pub(crate) fn new<'t>(vocabulary: &Vocabulary, pairs: impl Iterator<Item = (&'t str, &'t str)>) -> Self {
        let mut joined = String::new();
        let mut merge = |(left, right): (&str, &str)| {
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            Some([vocabulary.id(left)?, vocabulary.id(right)?, vocabulary.id(&joined)?])
        };
        let pairs: Vec<[u32; 3]> = pairs.filter_map(&mut merge).collect();
        let slots = vec![EMPTY; (pairs.len() * 2).next_power_of_two().max(2)];
        let mut table = Self { pairs, slots, hasher: RandomState::new() };
        for rank in 0..table.pairs.len() as u32 {
            let [left, right, _] = table.pairs[rank as usize];
            let slot = table.slot(left, right);
            table.slots[slot] = rank;
        }
        table
    }

    fn slot(&self, left: u32, right: u32) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = self.hasher.hash_one((left, right)) as usize & mask;
        while self.slots[slot] != EMPTY && self.pairs[self.slots[slot] as usize][..2] != [left, right] {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// The rank of merging `left` with `right`, and the token that they become.
    pub(crate) fn get(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        let rank = self.slots[self.slot(left, right)];
        (rank != EMPTY).then(|| (rank, self.pairs[rank as usize][2]))
    }
}
