//! What the tests of this crate share.

#![allow(dead_code, reason = "each test uses its part")]

#[path = "../../../../tests/default_models.rs"]
pub mod default_models;

use std::path::{Path, PathBuf};

use ropeway_embed::{Embedder, EmbedderOptions};
use ropeway_kernels::Isa;
use ropeway_machine::{Machine, Threads};
use ropeway_model::{LoadOptions, Precision, Quantize};
use ropeway_weights::Checkpoint;
use serde_json::Value;

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/encoders")
}

pub fn open(path: &Path, options: &EmbedderOptions) -> Embedder {
    let checkpoint = Checkpoint::open(path).expect("a checkpoint");
    Embedder::load(&checkpoint, options, &mut |_, _| {})
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON")
}

pub fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect()
}

pub fn ids(value: &Value) -> Vec<u32> {
    numbers(value).into_iter().map(|id| id as u32).collect()
}

pub fn loading(precision: Precision, quantize: Option<Quantize>) -> EmbedderOptions {
    EmbedderOptions { load: LoadOptions { precision, quantize }, ..EmbedderOptions::on(machine(Isa::best())) }
}

/// Two threads, so that work is shared out.
pub fn machine(isa: Isa) -> Machine {
    Machine::new(isa, Threads::UpTo(2))
}

pub fn cosine(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let dot: f64 = got.iter().zip(want).map(|(a, b)| f64::from(*a) * b).sum();
    let length = |squares: f64| squares.sqrt();
    let got_length = length(got.iter().map(|x| f64::from(*x).powi(2)).sum());
    dot / (got_length * length(want.iter().map(|x| x * x).sum()))
}
