//! Where the tests find the default model and the recorded reference outputs.
#![allow(dead_code)] // every test file uses its own part

#[path = "../../../../tests/default_models.rs"]
pub mod default_models;
pub mod gguf;

use ropeway_weights::Checkpoint;
use serde_json::Value;
use std::path::Path;

/// The default chat model, or `None` with a printed reason.
pub fn smollm2() -> Option<Checkpoint> {
    Some(Checkpoint::open(&default_models::smollm2()?).expect("the default model opens"))
}

/// A file of the repository's `tests/golden`.
pub fn golden(name: &str) -> Value {
    json(&Path::new("../../tests/golden").join(name))
}

/// A file of this crate's `tests/fixtures`.
pub fn fixture(name: &str) -> Value {
    json(&Path::new("tests/fixtures").join(name))
}

fn json(path: &Path) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("recorded files are JSON")
}

/// A list of token ids in a recorded file.
pub fn ids(value: &Value) -> Vec<u32> {
    value.as_array().expect("a list").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}
