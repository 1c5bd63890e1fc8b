//! Where the tests find the default model and the recorded reference outputs.
#![allow(dead_code)] // every test file uses its own part

pub mod gguf;

use ropeway_weights::Checkpoint;
use serde_json::Value;
use std::path::{Path, PathBuf};

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The default chat model, or `None` with a printed reason.
pub fn smollm2() -> Option<Checkpoint> {
    let candidates: Vec<PathBuf> = [given(), cached()].into_iter().flatten().collect();
    let Some(path) = candidates.iter().find(|path| path.is_file()) else {
        eprintln!(
            "skipped: no {FILE} at {candidates:?}; run `ropeway pull smollm2:135m` or set ROPEWAY_TEST_MODEL_DIR"
        );
        return None;
    };
    Some(Checkpoint::open(path).expect("the default model opens"))
}

fn given() -> Option<PathBuf> {
    Some(Path::new(&std::env::var_os("ROPEWAY_TEST_MODEL_DIR")?).join(FILE))
}

fn cached() -> Option<PathBuf> {
    let home = match std::env::var_os("ROPEWAY_HOME") {
        Some(home) => PathBuf::from(home),
        None => Path::new(&std::env::var_os("HOME")?).join(".cache/ropeway"),
    };
    Some(home.join("models/smollm2-135m").join(FILE))
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
