//! An answer's own name: id, time and model.

use std::hash::{BuildHasher, RandomState};

use serde_json::{Value, json};

use crate::model::unix_seconds;

/// What every object about the same answer carries.
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
    /// A new one.
    pub fn new(prefix: &str, model: &str) -> Self {
        Self { id: unique(prefix), created: unix_seconds(), model: model.into() }
    }

    /// An OpenAI object of this type.
    pub fn object(&self, object: &str) -> Value {
        json!({ "id": self.id, "object": object, "created": self.created, "model": self.model })
    }
}

/// A unique name with this beginning.
pub fn unique(prefix: &str) -> String {
    let random = RandomState::new();
    format!("{prefix}{:016x}{:016x}", random.hash_one(1), random.hash_one(2))
}
