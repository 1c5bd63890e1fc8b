//! Where tests find the default models and the recorded outputs.

#![allow(dead_code, reason = "each test file uses its part")]

#[path = "../../../../tests/default_models.rs"]
pub mod default_models;

use std::path::{Path, PathBuf};

use serde_json::Value;

/// A recorded output of `tests/golden`.
pub fn golden(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("golden files are JSON")
}

/// The folder of tiny checkpoints.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models")
}

/// A JSON file in the folder of tiny checkpoints.
pub fn fixture_json(name: &str) -> Value {
    let path = fixtures().join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("fixture files are JSON")
}
