//! A map of hashes that forgets what was used longest ago.
//!
//! ```text
//! places   key -> node                       nodes   newest <-> ... <-> oldest
//! ```
//! A node whose key is forgotten is used again at once, so that memory never grows beyond `most` nodes.

use std::collections::HashMap;

/// No node.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Node<V> {
    key: u64,
    newer: u32,
    older: u32,
    value: V,
}

/// A map of at most so many keys.
#[derive(Debug)]
pub struct Lru<V> {
    places: HashMap<u64, u32>,
    nodes: Vec<Node<V>>,
    newest: u32,
    oldest: u32,
    most: usize,
}

impl<V: Default> Lru<V> {
    /// An empty map of at most `most` keys, and at least one.
    pub fn new(most: usize) -> Self {
        let most = most.clamp(1, NONE as usize);
        Self { places: HashMap::new(), nodes: Vec::new(), newest: NONE, oldest: NONE, most }
    }

    /// The value of a key, which does not count as a use.
    pub fn get(&self, key: u64) -> Option<&V> {
        self.places.get(&key).map(|node| &self.nodes[*node as usize].value)
    }

    /// Uses a key: the newest from now on, with an empty value if it was not there.
    pub fn touch(&mut self, key: u64) -> &mut V {
        let node = match self.places.get(&key) {
            Some(node) => {
                let node = *node;
                self.unlink(node);
                node
            }
            None => self.make(key),
        };
        self.link(node);
        &mut self.nodes[node as usize].value
    }

    /// A node for a new key, that of the oldest one if there may be no more.
    fn make(&mut self, key: u64) -> u32 {
        let fresh = Node { key, newer: NONE, older: NONE, value: V::default() };
        let node = if self.nodes.len() < self.most {
            self.nodes.push(fresh);
            self.nodes.len() as u32 - 1
        } else {
            let node = self.oldest;
            self.unlink(node);
            self.places.remove(&self.nodes[node as usize].key);
            self.nodes[node as usize] = fresh;
            node
        };
        self.places.insert(key, node);
        node
    }

    fn unlink(&mut self, node: u32) {
        let Node { newer, older, .. } = self.nodes[node as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
    }

    fn link(&mut self, node: u32) {
        let second = std::mem::replace(&mut self.newest, node);
        self.nodes[node as usize].newer = NONE;
        self.nodes[node as usize].older = second;
        match second {
            NONE => self.oldest = node,
            second => self.nodes[second as usize].newer = node,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_keys_used_last_are_kept_and_no_others(keys in prop::collection::vec(0_u64..40, 1..300), most in 1_usize..20) {
            let mut lru = Lru::<u64>::new(most);
            for key in &keys {
                *lru.touch(*key) = *key;
            }
            let mut latest = Vec::new();
            for key in keys.iter().rev() {
                if !latest.contains(key) {
                    latest.push(*key);
                }
            }
            for (age, key) in latest.iter().enumerate() {
                prop_assert_eq!(lru.get(*key), (age < most).then_some(key));
            }
            prop_assert!(lru.nodes.len() <= most && lru.places.len() == lru.nodes.len());
        }
    }

    #[test]
    fn looking_at_a_key_does_not_keep_it() {
        let mut lru = Lru::<()>::new(2);
        lru.touch(1);
        lru.touch(2);
        assert!(lru.get(1).is_some());
        lru.touch(3);
        assert!(lru.get(1).is_none());
    }
}
