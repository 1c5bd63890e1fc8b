//! Encoders on an emulated GPU: every family against transformers' vectors and scores, and a text's bits in any company.

mod emulator;

use std::path::{Path, PathBuf};

use ropeway_cuda::{CudaEncoder, CudaOptions, CudaTextDecoder};
use ropeway_embed::{EmbedOptions, Embedder, EmbedderOptions, Input};
use ropeway_executor::Class;
use ropeway_model::encoder::device::{Asked, DeviceEncoder};
use ropeway_model::encoder::{EncoderSpec, Pooling, Texts};
use ropeway_weights::Checkpoint;
use serde_json::Value;

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

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/encoders").join(name)
}

fn expected(name: &str) -> Value {
    let path = folder(name.split('.').next().expect("a name")).join("expected.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON")
}

fn numbers(values: &Value) -> Vec<f64> {
    values.as_array().expect("numbers").iter().map(|x| x.as_f64().expect("a number")).collect()
}

fn ids(values: &Value) -> Vec<u32> {
    numbers(values).into_iter().map(|id| id as u32).collect()
}

fn encoder(name: &str, options: &CudaOptions) -> CudaEncoder {
    let checkpoint = Checkpoint::open(&folder(name)).expect("a checkpoint");
    CudaEncoder::load(&checkpoint, 256, options.clone(), &mut |_, _| {})
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn embedder(name: &str, options: &CudaOptions) -> Embedder {
    let checkpoint = Checkpoint::open(&folder(name)).expect("a checkpoint");
    let model: Box<dyn DeviceEncoder> = if EncoderSpec::describes(&checkpoint) {
        Box::new(encoder(name, options))
    } else {
        let decoder = CudaTextDecoder::load(&checkpoint, 256, options.clone(), &mut |_, _| {});
        Box::new(decoder.unwrap_or_else(|error| panic!("{name}: {error}")))
    };
    Embedder::on_device(&checkpoint, model, &EmbedderOptions::default()).expect("an embedder")
}

fn cosine(got: &[f32], want: &[f64]) -> f64 {
    let dot: f64 = got.iter().zip(want).map(|(got, want)| f64::from(*got) * want).sum();
    let length = |squares: f64| squares.sqrt();
    dot / length(got.iter().map(|x| f64::from(*x).powi(2)).sum()) / length(want.iter().map(|x| x * x).sum())
}

#[test]
fn every_family_s_vectors_agree_with_transformers_as_far_as_bf16_goes() {
    let Some(options) = emulator::options() else { return };
    for name in EMBEDDERS {
        let embedder = embedder(name, &options);
        for case in expected(name)["of_ids"].as_array().expect("cases") {
            let pending = embedder.embed(Input::Tokens(&ids(&case["ids"])), &EmbedOptions::default());
            let got = pending.expect("taken").wait().expect("computed").vector;
            let cosine = cosine(&got, &numbers(&case["vector"]));
            println!("{name}: cosine {cosine:.6}");
            assert!(cosine > 0.9995, "{name}: {cosine}");
        }
    }
}

#[test]
fn rankers_score_pairs_as_transformers_does() {
    let Some(options) = emulator::options() else { return };
    for name in RANKERS {
        let embedder = embedder(name, &options);
        for case in expected(name)["of_texts"].as_array().expect("cases") {
            let text = |key: &str| case[key].as_str().expect("a text");
            let pending = embedder.score(text("text"), text("other"), Class::default()).expect("taken");
            let got = f64::from(pending.wait().expect("a score").raw);
            let want = numbers(&case["vector"])[0];
            println!("{name}: {got:.4} {want:.4}");
            assert!((got - want).abs() < 0.02, "{name}: {got} instead of {want}");
        }
    }
}

fn tokens(count: usize, seed: usize) -> Vec<u32> {
    (0..count).map(|index| ((index + 1) * 7919 * (seed + 1) % 60 + 4) as u32).collect()
}

fn vectors(encoder: &mut CudaEncoder, texts: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let flat: Vec<u32> = texts.concat();
    let mut first = 0;
    let rows: Vec<_> = texts
        .iter()
        .map(|text| {
            first += text.len();
            first - text.len()..first
        })
        .collect();
    let texts = Texts { tokens: &flat, types: &[], rows: &rows };
    let asked = Asked { vectors: Some(Pooling::Mean), scores: false };
    let vectors = encoder.encode(&texts, asked).expect("vectors").vectors;
    vectors.iter().map(|vector| vector.iter().map(|x| x.to_bits()).collect()).collect()
}

#[test]
fn a_text_s_bits_are_the_same_alone_and_among_others_however_long_it_is() {
    let Some(options) = emulator::options() else { return };
    for name in ["mpnet", "modernbert"] {
        let mut encoder = encoder(name, &options);
        let texts: Vec<Vec<u32>> =
            [3, 65, 1, 78, 64, 17].into_iter().enumerate().map(|(seed, len)| tokens(len, seed)).collect();
        let together = vectors(&mut encoder, &texts);
        for (text, together) in texts.iter().zip(&together) {
            let alone = vectors(&mut encoder, std::slice::from_ref(text));
            assert_eq!(&alone[0], together, "{name}, {} tokens", text.len());
        }
    }
}
