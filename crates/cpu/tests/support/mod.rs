//! Where tests find the default model and the recorded outputs.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The default model's file, from `ROPEWAY_TEST_MODEL_DIR` or the cache; `None`, with a printed reason, when absent.
pub fn smollm2() -> Option<PathBuf> {
    const NAME: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
    let cache = std::env::var_os("ROPEWAY_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/ropeway")));
    let places = [
        std::env::var_os("ROPEWAY_TEST_MODEL_DIR").map(PathBuf::from),
        cache.map(|cache| cache.join("models/smollm2-135m")),
    ];
    let found = places.into_iter().flatten().map(|dir| dir.join(NAME)).find(|path| path.exists());
    if found.is_none() {
        println!("skipped: {NAME} is not here; run `ropeway pull smollm2` or set ROPEWAY_TEST_MODEL_DIR");
    }
    found
}

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
