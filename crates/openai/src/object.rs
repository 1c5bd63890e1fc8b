//! The head of every response object.

use ropeway_generation::Identity;
use serde_json::{Value, json};

/// An object of this type about a response.
pub fn object(identity: &Identity, object: &str) -> Value {
    json!({ "id": identity.id, "object": object, "created": identity.created, "model": identity.model })
}
