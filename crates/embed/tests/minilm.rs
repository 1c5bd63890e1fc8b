//! The default embedding model against what sentence-transformers gives in float32 (`tests/golden/minilm.json`).

mod support;

use std::path::Path;

use ropeway_embed::{EmbedOptions, EmbedderOptions, Input};
use ropeway_kernels::Isa;
use ropeway_model::{Precision, Quantize};
use support::default_models::minilm;
use support::{cosine, ids, json, loading, machine, numbers, open};

/// The smallest cosine over all recorded texts; `None` without the model.
fn least_cosine(options: &EmbedderOptions) -> Option<f64> {
    let embedder = open(&minilm()?, options);
    let golden = json(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/minilm.json"));
    let mut least = 1f64;
    for item in golden["items"].as_array().expect("items") {
        let text = item["text"].as_str().expect("a text");
        let got = embedder.embed(Input::Text(text), &EmbedOptions::default()).expect("taken");
        let got = got.wait().expect("computed");
        assert_eq!(got.tokens, ids(&item["input_ids"]).len(), "{text}");
        least = least.min(cosine(&got.vector, &numbers(&item["embedding"])));
    }
    Some(least)
}

#[test]
fn vectors_are_those_of_sentence_transformers_on_every_instruction_set() {
    for isa in Isa::available().into_iter().skip(1) {
        let Some(least) = least_cosine(&EmbedderOptions::on(machine(isa))) else {
            return;
        };
        println!("{isa}: 1 - cosine at most {:.1e}", 1.0 - least);
        assert!(least > 0.999_999, "{isa}: {least}");
    }
}

#[test]
fn weights_packed_as_bytes_keep_the_direction() {
    let Some(least) = least_cosine(&loading(Precision::Fast, Some(Quantize::Q8))) else { return };
    println!("int8: cosine at least {least:.6}");
    assert!(least > 0.9975, "{least}");
}
