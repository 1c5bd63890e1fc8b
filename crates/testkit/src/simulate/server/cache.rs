//! A prefix cache by the names of its blocks: which of them are in memory.
//!
//! ```text
//! latest   block -> when it was last used
//! uses     (when, block), the oldest first; entries that are not the latest use of their block are passed over
//! ```

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Blocks in memory, those used longest ago making room.
#[derive(Debug, Default)]
pub struct BlockCache {
    latest: HashMap<u64, u64, BuildHasherDefault<NameHasher>>,
    uses: VecDeque<(u64, u64)>,
    clock: u64,
}

/// Names of blocks are hashes already.
#[derive(Debug, Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, name: u64) {
        self.0 = (self.0 ^ name).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl BlockCache {
    /// How many of these blocks are there, from the first one on.
    pub fn found(&self, blocks: &[u64]) -> usize {
        blocks.iter().take_while(|block| self.latest.contains_key(block)).count()
    }

    /// Uses these blocks, whether they were there or not. The last ones count as used first: the beginning of a prompt is
    /// kept for longer than its end.
    pub fn touch(&mut self, blocks: &[u64]) {
        for block in blocks.iter().rev() {
            self.clock += 1;
            self.latest.insert(*block, self.clock);
            self.uses.push_back((self.clock, *block));
        }
        if self.uses.len() > 64 + 4 * self.latest.len() {
            let latest = &self.latest;
            self.uses.retain(|(at, block)| latest.get(block) == Some(at));
        }
    }

    /// Forgets what was used longest ago until at most so many are left.
    pub fn shrink_to(&mut self, most: usize) {
        while self.latest.len() > most
            && let Some((at, block)) = self.uses.pop_front()
        {
            if self.latest.get(&block) == Some(&at) {
                self.latest.remove(&block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_goes_first_and_the_end_of_a_prompt_before_its_beginning() {
        let mut cache = BlockCache::default();
        cache.touch(&[1, 2, 3]);
        cache.touch(&[7]);
        cache.shrink_to(3);
        assert_eq!([cache.found(&[1, 2, 3]), cache.found(&[7])], [2, 1]);
        cache.touch(&[1, 2]);
        cache.shrink_to(2);
        assert_eq!([cache.found(&[1, 2]), cache.found(&[7])], [2, 0]);
    }

    #[test]
    fn memory_is_bounded_by_what_is_held() {
        let mut cache = BlockCache::default();
        (0..100_000).for_each(|_| cache.touch(&[1, 2, 3]));
        assert!(cache.uses.len() < 100);
        cache.shrink_to(0);
        assert!(cache.latest.is_empty());
    }
}
