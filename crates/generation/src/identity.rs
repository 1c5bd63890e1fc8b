//! A response's own name: id, time and model.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// What every object about the same response carries.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Unique.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The model that answers.
    pub model: String,
}

impl Identity {
    /// A unique one, whose id begins with `prefix`.
    pub fn new(prefix: &str, model: &str) -> Self {
        Self::named(unique(prefix), model)
    }

    /// One with this id.
    pub fn named(id: String, model: &str) -> Self {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Self { id, created, model: model.into() }
    }
}

/// A unique name that begins with `prefix`.
pub fn unique(prefix: &str) -> String {
    let random = RandomState::new();
    format!("{prefix}{:016x}{:016x}", random.hash_one(1), random.hash_one(2))
}
