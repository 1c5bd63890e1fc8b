//! Verdicts that were given before: whoever sends a costly grammar again is answered at once.

use std::collections::HashMap;

use super::queue::Job;
use super::wire::Verdict;

/// Verdicts kept. One takes up to a kilobyte.
const KEPT: usize = 2048;

/// A grammar and the vocabulary that it was compiled for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    grammar: [u8; 32],
    vocabulary: [u8; 32],
}

impl Key {
    pub(super) fn of(job: &Job) -> Self {
        Self { grammar: job.hash, vocabulary: job.vocabulary.digest() }
    }
}

struct Entry {
    verdict: Verdict,
    used: u64,
}

/// Verdicts; the ones not used for longest make way for new ones.
#[derive(Default)]
pub(super) struct Verdicts {
    entries: HashMap<Key, Entry>,
    uses: u64,
}

impl Verdicts {
    pub(super) fn get(&mut self, key: &Key) -> Option<Verdict> {
        self.uses += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.uses;
        Some(entry.verdict.clone())
    }

    pub(super) fn insert(&mut self, key: Key, verdict: Verdict) {
        self.uses += 1;
        if self.entries.len() >= KEPT {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.entries.remove(&key));
        }
        self.entries.insert(key, Entry { verdict, used: self.uses });
    }
}
