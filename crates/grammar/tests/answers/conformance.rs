//! The JSON-Schema-Test-Suite: no grammar lets through what its schema does not allow.
//!
//! The suite is part of the source distribution of the Python package `jsonschema`:
//! `pip download --no-deps --no-binary :all: jsonschema`, unpacked, its folder `json` in `ROPEWAY_TEST_SCHEMA_SUITE`.

use std::path::PathBuf;

use ropeway_grammar::{GrammarSpec, Strictness};
use serde_json::Value;

use crate::forms::lets_through;
use crate::model;

#[derive(Debug, Default)]
struct Tally {
    schemas: usize,
    unsupported: usize,
    /// Invalid values that were not let through.
    refused: usize,
    /// Valid values that were; others are written in another order, or hold properties that closed objects don't have.
    let_through: usize,
    valid: usize,
}

#[test]
fn nothing_invalid_is_let_through() {
    let Some(suite) = std::env::var_os("ROPEWAY_TEST_SCHEMA_SUITE").map(PathBuf::from) else {
        eprintln!("skipped: set ROPEWAY_TEST_SCHEMA_SUITE to the JSON-Schema-Test-Suite");
        return;
    };
    let Some(tokenizer) = model::tokenizer() else { return };
    let compiler = ropeway_grammar::Compiler::new(&tokenizer);
    let mut tally = Tally::default();
    let folder = std::fs::read_dir(suite.join("tests/draft2020-12")).expect("the suite");
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.expect("a file").path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a file");
        let groups: Vec<Value> = serde_json::from_str(&text).expect("a list of groups");
        for group in groups {
            tally.schemas += 1;
            let spec =
                GrammarSpec::JsonSchema { schema: group["schema"].clone(), strictness: Strictness::Strict };
            let Ok(grammar) = compiler.compile(&spec, None) else {
                tally.unsupported += 1;
                continue;
            };
            for test in group["tests"].as_array().expect("tests") {
                let passes = lets_through(&tokenizer, &*grammar, &test["data"].to_string());
                if test["valid"] == true {
                    tally.valid += 1;
                    tally.let_through += usize::from(passes);
                } else {
                    let (group, test) = (&group["description"], &test["description"]);
                    assert!(!passes, "{}: {group}, {test}", path.display());
                    tally.refused += 1;
                }
            }
        }
    }
    println!("{tally:?}");
    assert!(tally.refused > 100, "{tally:?}");
}
