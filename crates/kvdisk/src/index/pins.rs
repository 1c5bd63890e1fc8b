//! Blocks that are kept while others can be reclaimed.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use super::ShelfId;
use crate::Key;

/// What one name keeps, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) keys: Vec<Key>,
    pub(crate) until: SystemTime,
}

/// All pins. A block may be pinned under several names, and before it is stored.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    named: BTreeMap<(ShelfId, String), Pin>,
    /// Names that keep a block.
    counts: HashMap<(ShelfId, Key), u32>,
    /// Bytes of the records of all pinned blocks.
    bytes: u64,
    /// Bytes at most.
    pub(crate) allowed: u64,
}

/// What came of a pin.
pub(super) struct Kept {
    /// How many keys, from the first on.
    pub(super) keys: usize,
    /// Those of them that no other name kept.
    pub(super) newly: Vec<Key>,
}

impl Pins {
    pub(crate) fn covers(&self, shelf: ShelfId, key: &Key) -> bool {
        !self.counts.is_empty() && self.counts.contains_key(&(shelf, *key))
    }

    /// Bytes of the records of all pinned blocks, stored or not.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ShelfId, &str, &Pin)> {
        self.named.iter().map(|((shelf, name), pin)| (*shelf, name.as_str(), pin))
    }

    /// Keys of all pins, counted as often as they are pinned.
    pub(crate) fn keys(&self) -> u64 {
        self.named.values().map(|pin| pin.keys.len() as u64).sum()
    }

    /// Names whose time is over.
    pub(crate) fn expired(&self, now: SystemTime) -> Vec<(ShelfId, String)> {
        self.named.iter().filter(|(_, pin)| pin.until <= now).map(|(name, _)| name.clone()).collect()
    }

    /// Adds a pin under a name that has none, as far as `allowed` goes.
    pub(super) fn add(&mut self, shelf: ShelfId, name: &str, mut pin: Pin, stride: u64) -> Kept {
        let mut newly = Vec::new();
        let mut kept = 0;
        for key in &pin.keys {
            match self.counts.get_mut(&(shelf, *key)) {
                Some(count) => *count += 1,
                None if self.bytes + stride > self.allowed => break,
                None => {
                    self.counts.insert((shelf, *key), 1);
                    self.bytes += stride;
                    newly.push(*key);
                }
            }
            kept += 1;
        }
        pin.keys.truncate(kept);
        if kept > 0 {
            self.named.insert((shelf, name.to_string()), pin);
        }
        Kept { keys: kept, newly }
    }

    /// Removes what a name keeps; returns the keys that nobody keeps any more.
    pub(super) fn remove(&mut self, shelf: ShelfId, name: &str, stride: u64) -> Vec<Key> {
        let pin = self.named.remove(&(shelf, name.to_string()));
        let mut keys = pin.map(|pin| pin.keys).unwrap_or_default();
        keys.retain(|key| self.release(shelf, key));
        self.bytes -= stride * keys.len() as u64;
        keys
    }

    /// One name less keeps this block; whether it was the last.
    fn release(&mut self, shelf: ShelfId, key: &Key) -> bool {
        let Some(count) = self.counts.get_mut(&(shelf, *key)) else { return false };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.counts.remove(&(shelf, *key));
        }
        is_last
    }
}
