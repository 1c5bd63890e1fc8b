//! Where tests find the default models: in the folder that `ROPEWAY_TEST_MODEL_DIR` names, or in the cache that
//! `ropeway pull` fills. A test without its model prints why it is skipped and passes.
//!
//! A module that the tests of several crates include by path; it relies on nothing but the standard library.

#![allow(dead_code, reason = "each crate uses its part")]

use std::path::{Path, PathBuf};

/// The file of the default chat model.
pub fn smollm2() -> Option<PathBuf> {
    find("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m", "smollm2")
}

/// The folder of the default embedding model.
pub fn minilm() -> Option<PathBuf> {
    let tokenizer = find("all-minilm-l6-v2/tokenizer.json", "", "all-minilm")?;
    tokenizer.parent().map(Path::to_owned)
}

/// `file` in the given folder, or in the cache's folder of the model; `name` is what `ropeway pull` calls it.
fn find(file: &str, folder: &str, name: &str) -> Option<PathBuf> {
    let given = std::env::var_os("ROPEWAY_TEST_MODEL_DIR").map(PathBuf::from);
    let cached = home().map(|home| home.join("models").join(folder));
    let found =
        [given, cached].into_iter().flatten().map(|folder| folder.join(file)).find(|path| path.is_file());
    if found.is_none() {
        println!("skipped: {file} is not here; run `ropeway pull {name}` or set ROPEWAY_TEST_MODEL_DIR");
    }
    found
}

fn home() -> Option<PathBuf> {
    let given = std::env::var_os("ROPEWAY_HOME").map(PathBuf::from);
    given.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache/ropeway")))
}
