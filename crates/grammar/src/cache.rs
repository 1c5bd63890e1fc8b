//! Compiled grammars, kept for whoever asks for the same again.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::compiler::{Compiled, Stats};
use crate::error::GrammarError;

/// Compiled grammars kept. A pipeline uses a dozen schemas again and again; one takes some hundred kilobytes.
const KEPT: usize = 128;

/// Bytes of compiled grammars kept.
const KEPT_BYTES: usize = 64 << 20;

pub(crate) type Outcome = Result<Arc<Compiled>, GrammarError>;

/// A grammar that is compiled once, by the first who asks; others wait for that.
struct Entry {
    outcome: Arc<OnceLock<Outcome>>,
    used: u64,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.outcome.get().and_then(|outcome| outcome.as_ref().ok()).map_or(0, |compiled| compiled.bytes())
    }
}

/// Grammars by the hash of their specification.
#[derive(Default)]
pub(crate) struct Cache {
    entries: HashMap<[u8; 32], Entry>,
    uses: u64,
    pub(crate) stats: Stats,
}

impl Cache {
    /// Whether a grammar is compiled, or being compiled.
    pub(crate) fn holds(&self, hash: &[u8; 32]) -> bool {
        self.entries.contains_key(hash)
    }

    /// The place of a grammar's outcome, made if it is not there; the one not used for longest makes way.
    pub(crate) fn entry(&mut self, hash: [u8; 32]) -> Arc<OnceLock<Outcome>> {
        self.uses += 1;
        let uses = self.uses;
        if let Some(entry) = self.entries.get_mut(&hash) {
            self.stats.hits += 1;
            entry.used = uses;
            return Arc::clone(&entry.outcome);
        }
        let outcome = Arc::new(OnceLock::new());
        self.entries.insert(hash, Entry { outcome: Arc::clone(&outcome), used: uses });
        self.shrink();
        outcome
    }

    /// Lets those go that were not used for longest, until the others are few and small enough.
    pub(crate) fn shrink(&mut self) {
        let is_full = |entries: &HashMap<_, Entry>| {
            entries.len() > KEPT || entries.values().map(Entry::bytes).sum::<usize>() > KEPT_BYTES
        };
        while self.entries.len() > 1 && is_full(&self.entries) {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(hash, _)| *hash);
            oldest.and_then(|hash| self.entries.remove(&hash));
        }
    }
}
