//! Every encoder's tiny checkpoint against transformers' vectors, and the speed of a real one if its folder is given.

use std::path::Path;
use std::time::Instant;

use ropeway_cuda::{CudaEncoder, CudaTextDecoder};
use ropeway_embed::{EmbedOptions, Embedder, EmbedderOptions, Input};
use ropeway_model::encoder::device::{Asked, DeviceEncoder};
use ropeway_model::encoder::{EncoderSpec, Pooling, Texts};
use ropeway_weights::Checkpoint;
use serde_json::Value;

use crate::families::{ids, read_json};
use crate::{Failed, Task};

/// What bf16 leaves of a vector's direction on random models of 64 columns.
const BOUND: f64 = 0.9995;

/// Tokens of a pass, and of each of its texts, in the measurement.
const PASS: usize = 8192;
const TEXTS: [usize; 3] = [32, 128, 512];

pub fn check(task: &Task) -> Result<(), Failed> {
    let folder = task.fixtures.join("../encoders");
    let names = ["bert", "xlm-roberta", "mpnet", "distilbert", "nomic-bert", "modernbert", "qwen3-embedding"];
    let mut wrong = Vec::new();
    for name in names {
        let worst = worst_cosine(task, &folder.join(name))?;
        println!("RES encoder {name}: worst cosine {worst:.6}");
        if worst.is_nan() || worst < BOUND {
            wrong.push(name);
        }
    }
    if let Some(folder) = &task.encoder {
        measure(task, folder)?;
    }
    if wrong.is_empty() { Ok(()) } else { Err(Failed::Wrong(wrong.join(", "))) }
}

fn open(folder: &Path) -> Result<Checkpoint, Failed> {
    Checkpoint::open(folder).map_err(|error| Failed::Wrong(error.to_string()))
}

fn load(task: &Task, checkpoint: &Checkpoint) -> Result<Box<dyn DeviceEncoder>, Failed> {
    let options = task.options.clone();
    Ok(if EncoderSpec::describes(checkpoint) {
        Box::new(CudaEncoder::load(checkpoint, PASS, options, &mut |_, _| {})?)
    } else {
        Box::new(CudaTextDecoder::load(checkpoint, PASS, options, &mut |_, _| {})?)
    })
}

fn worst_cosine(task: &Task, folder: &Path) -> Result<f64, Failed> {
    let wrong = |error: ropeway_embed::EmbedError| Failed::Wrong(error.to_string());
    let checkpoint = open(folder)?;
    let model = load(task, &checkpoint)?;
    let embedder = Embedder::on_device(&checkpoint, model, &EmbedderOptions::default()).map_err(wrong)?;
    let mut worst = f64::INFINITY;
    for case in read_json(&folder.join("expected.json"))?["of_ids"].as_array().into_iter().flatten() {
        let pending = embedder.embed(Input::Tokens(&ids(&case["ids"])), &EmbedOptions::default());
        let got = pending.map_err(wrong)?.wait().map_err(wrong)?.vector;
        let want: Vec<f64> =
            case["vector"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        worst = worst.min(cosine(&got, &want));
    }
    Ok(worst)
}

fn cosine(got: &[f32], want: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let got: Vec<f64> = got.iter().map(|x| f64::from(*x)).collect();
    dot(&got, want) / (dot(&got, &got) * dot(want, want)).sqrt()
}

/// Tokens a second of passes full of texts of one length.
fn measure(task: &Task, folder: &Path) -> Result<(), Failed> {
    let mut model = load(task, &open(folder)?)?;
    let facts = model.facts();
    for len in TEXTS.into_iter().filter(|len| *len <= facts.max_tokens) {
        let rows: Vec<_> = (0..PASS / len).map(|text| text * len..(text + 1) * len).collect();
        let tokens: Vec<u32> =
            (0..rows.len() * len).map(|at| (at * 7919 % (facts.vocab - 1)) as u32).collect();
        let texts = Texts { tokens: &tokens, types: &[], rows: &rows };
        let asked = Asked { vectors: Some(Pooling::Mean), scores: false };
        let mut pass = || model.encode(&texts, asked).map_err(|failure| Failed::Wrong(failure.0));
        pass()?;
        let start = Instant::now();
        let passes = 20;
        for _ in 0..passes {
            pass()?;
        }
        let seconds = start.elapsed().as_secs_f64() / f64::from(passes);
        println!(
            "RES encoder {}: {} texts of {len} tokens in {:.2} ms, {:.0} tokens/s",
            facts.family,
            rows.len(),
            seconds * 1e3,
            tokens.len() as f64 / seconds
        );
    }
    Ok(())
}
