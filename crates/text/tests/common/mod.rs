//! Where the tests find the default model and the recorded reference outputs.
#![allow(dead_code)] // every test file uses its own part

pub mod gguf;

use ropeway_weights::Checkpoint;
use serde_json::Value;
use std::path::{Path, PathBuf};

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The default chat model, or `None` with a printed reason.
pub fn smollm2() -> Option<Checkpoint> {
    let path = find(FILE, "smollm2-135m", "smollm2:135m")?;
    Some(Checkpoint::open(&path).expect("the default model opens"))
}

/// The folder of the default embedding model, or `None` with a printed reason.
pub fn minilm() -> Option<PathBuf> {
    find("all-minilm-l6-v2/tokenizer.json", "", "all-minilm:l6-v2")
        .map(|path| path.parent().unwrap().to_owned())
}

/// A file of the folder that `ROPEWAY_TEST_MODEL_DIR` names, or of a model in the cache.
fn find(file: &str, model: &str, name: &str) -> Option<PathBuf> {
    let given = std::env::var_os("ROPEWAY_TEST_MODEL_DIR").map(|folder| Path::new(&folder).join(file));
    let cached = home().map(|home| home.join("models").join(model).join(file));
    let candidates: Vec<PathBuf> = [given, cached].into_iter().flatten().collect();
    let found = candidates.iter().find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: none of {candidates:?}; run `ropeway pull {name}` or set ROPEWAY_TEST_MODEL_DIR");
    }
    found.cloned()
}

fn home() -> Option<PathBuf> {
    let given = std::env::var_os("ROPEWAY_HOME").map(PathBuf::from);
    given.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache/ropeway")))
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
