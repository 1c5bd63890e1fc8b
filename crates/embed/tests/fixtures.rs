//! Every encoder family against the vectors transformers gives for a tiny checkpoint of it (`tests/fixtures/encoders`).

mod support;

use ropeway_embed::{EmbedOptions, Embedder, EmbedderOptions, Input, Purpose};
use ropeway_executor::Class;
use ropeway_kernels::Isa;
use ropeway_model::{Precision, Quantize};
use serde_json::Value;
use support::{cosine, fixtures, ids, json, loading, machine, numbers};

const EMBEDDERS: [&str; 9] = [
    "bert",
    "bert.f16.gguf",
    "xlm-roberta",
    "mpnet",
    "distilbert",
    "nomic-bert",
    "nomic-bert.f16.gguf",
    "modernbert",
    "qwen3-embedding",
];
const RANKERS: [&str; 3] = ["cross-bert", "cross-xlm-roberta", "cross-modernbert"];

fn open(name: &str, options: &EmbedderOptions) -> Embedder {
    support::open(&fixtures().join(name), options)
}

fn expected(name: &str) -> Value {
    json(&fixtures().join(name.split('.').next().expect("a name")).join("expected.json"))
}

/// Largest difference in units of the expected vector's root mean square.
fn error(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let rms = (want.iter().map(|x| x * x).sum::<f64>() / want.len() as f64).sqrt();
    got.iter().zip(want).map(|(g, w)| (f64::from(*g) - w).abs()).fold(0.0, f64::max) / rms
}

/// What comes out of all recorded ids, and what should.
fn vectors(name: &str, options: &EmbedderOptions) -> Vec<(Vec<f32>, Vec<f64>)> {
    let embedder = open(name, options);
    let case = |case: &Value| {
        let pending = embedder.embed(Input::Tokens(&ids(&case["ids"])), &EmbedOptions::default());
        (pending.expect("taken").wait().expect("computed").vector, numbers(&case["vector"]))
    };
    expected(name)["of_ids"].as_array().expect("cases").iter().map(case).collect()
}

/// The largest error over all recorded ids.
fn worst(name: &str, options: &EmbedderOptions) -> f64 {
    vectors(name, options).iter().map(|(got, want)| error(got, want)).fold(0.0, f64::max)
}

#[test]
fn every_family_equals_transformers_on_every_instruction_set() {
    for name in EMBEDDERS {
        for isa in Isa::available() {
            let error =
                worst(name, &EmbedderOptions { machine: machine(isa), ..loading(Precision::F32, None) });
            println!("{name} {isa}: {error:.1e}");
            assert!(error < 5e-5, "{name} {isa}: {error}");
        }
    }
}

#[test]
fn weights_as_stored_and_as_bytes_stay_close() {
    for name in EMBEDDERS {
        let stored = worst(name, &loading(Precision::Fast, None));
        // Encoders multiply 16-bit weights with unrounded values; a decoder's cache has 13 bits.
        let bound = if name.starts_with("qwen3") { 2e-2 } else { 5e-5 };
        assert!(stored < bound, "{name}: {stored}");
        for (got, want) in vectors(name, &loading(Precision::Fast, Some(Quantize::Q8))) {
            let cosine = cosine(&got, &want);
            println!("{name}: stored {stored:.1e}, int8 cosine {cosine:.5}");
            // Random weights have no redundancy to hide their rounding.
            assert!(cosine > 0.99, "{name}: {cosine}");
        }
    }
}

#[test]
fn texts_become_the_tokens_and_vectors_of_hugging_face_prompts_and_truncation_included() {
    for name in ["bert", "bert.f16.gguf", "nomic-bert"] {
        let embedder = open(name, &loading(Precision::F32, None));
        for case in expected(name)["of_texts"].as_array().expect("cases") {
            let purpose = match case["prompt"].as_str() {
                Some("query") => Purpose::Query,
                Some("document") => Purpose::Document,
                _ => Purpose::Plain,
            };
            let options = EmbedOptions { purpose, ..EmbedOptions::default() };
            let text = case["text"].as_str().expect("a text");
            let want = ids(&case["ids"]);
            if name.ends_with("gguf") && want.len() == 24 {
                // The length limit is in a file that GGUF has no place for.
                continue;
            }
            let got = embedder.embed(Input::Text(text), &options).expect("taken").wait().expect("computed");
            assert_eq!(got.tokens, want.len(), "{name} {text}");
            let error = error(&got.vector, &numbers(&case["vector"]));
            assert!(error < 5e-5, "{name} {text}: {error}");
        }
    }
}

#[test]
fn cross_encoders_score_pairs_as_transformers_does() {
    for name in RANKERS {
        let embedder = open(name, &loading(Precision::F32, None));
        for case in expected(name)["of_texts"].as_array().expect("cases") {
            let text = |key: &str| case[key].as_str().expect("a text");
            let score = embedder.score(text("text"), text("other"), Class::Default).expect("taken");
            let score = score.wait().expect("computed");
            assert_eq!(score.tokens, ids(&case["ids"]).len(), "{name}");
            let want = numbers(&case["vector"])[0];
            assert!((f64::from(score.raw) - want).abs() < 1e-4, "{name}: {} {want}", score.raw);
            let sigmoid = 1.0 / (1.0 + (-want).exp());
            assert!((f64::from(score.relevance) - sigmoid).abs() < 1e-4, "{name}");
        }
    }
}
