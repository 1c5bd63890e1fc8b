//! Every model family against the logits transformers gives for a tiny checkpoint of it (`tests/fixtures/models`).

mod support;

use std::path::Path;

use ropeway_cpu::{CpuExecutor, CpuOptions, Machine, Threads};
use ropeway_executor::{Batch, BlockId, Executor, History, SamplingParams, StepOutput};
use ropeway_kernels::Isa;
use ropeway_kernels::kv::KvFormat;
use ropeway_model::{LoadOptions, Precision, Quantize, StepLimits};
use serde_json::Value;
use support::{fixture_json, fixtures};

/// One checkpoint and what is expected of it.
struct Case {
    path: String,
    expected: Value,
}

fn cases() -> Vec<Case> {
    let index = fixture_json("index.json");
    let entries = index.as_array().expect("a list of checkpoints");
    let case = |entry: &Value| Case {
        path: entry["path"].as_str().expect("path").to_owned(),
        expected: fixture_json(entry["expected"].as_str().expect("expected")),
    };
    entries.iter().map(case).collect()
}

impl Case {
    fn open(&self, options: &CpuOptions) -> CpuExecutor {
        let context = self.expected["context"].as_u64().map(|context| context as usize);
        let options = CpuOptions { context, step: StepLimits { tokens: 64, rows: 64 }, ..options.clone() };
        let path = fixtures().join(&self.path);
        CpuExecutor::open(&path, &options, &mut |_, _| {})
            .unwrap_or_else(|error| panic!("{}: {error}", self.path))
    }

    fn prompt(&self) -> Vec<u32> {
        ids(&self.expected["prompt_ids"])
    }

    /// Largest difference of a logit, relative to the spread of the expected ones, over all recorded positions.
    fn error(&self, executor: &mut CpuExecutor) -> f64 {
        let logits = all_logits(executor, &self.prompt());
        let positions = self.expected["positions"].as_array().expect("positions");
        let mut worst = 0f64;
        for (position, want) in positions.iter().zip(self.expected["logits"].as_array().expect("logits")) {
            let want: Vec<f64> =
                want.as_array().expect("a row").iter().map(|x| x.as_f64().expect("a logit")).collect();
            let got = &logits[position.as_u64().expect("a position") as usize];
            worst = worst.max(relative_error(got, &want));
        }
        worst
    }
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

fn table() -> Vec<BlockId> {
    vec![BlockId(1), BlockId(0)]
}

fn all_logits(executor: &mut CpuExecutor, prompt: &[u32]) -> Vec<Vec<f32>> {
    let mut batch = Batch::default();
    batch.push_chunk(prompt, 0, &table());
    for token in 0..prompt.len() {
        batch.score(token, 0, &SamplingParams::greedy());
    }
    executor.forward(&batch).expect("a step");
    (0..prompt.len()).map(|row| executor.logits(row).to_vec()).collect()
}

/// Error in units of the root mean square of the row.
fn relative_error(got: &[f32], want: &[f64]) -> f64 {
    let rms = (want.iter().map(|x| x * x).sum::<f64>() / want.len() as f64).sqrt();
    let most = got.iter().zip(want).map(|(g, w)| (f64::from(*g) - w).abs()).fold(0.0, f64::max);
    most / rms
}

fn options(precision: Precision, quantize: Option<Quantize>, kv_format: Option<KvFormat>) -> CpuOptions {
    let two_threads = CpuOptions::on(Machine::with_threads(Threads::UpTo(2)));
    CpuOptions { load: LoadOptions { precision, quantize }, kv_format, ..two_threads }
}

#[test]
fn the_f32_path_equals_transformers_for_every_family_and_file_format() {
    for case in cases() {
        let error = case.error(&mut case.open(&options(Precision::F32, None, None)));
        println!("{}: relative error {error:.1e}", case.path);
        // f32 arithmetic in another order, logits recorded to 6 digits.
        assert!(error < 1e-4, "{}: {error}", case.path);
    }
}

#[test]
fn the_fast_path_stays_within_the_rounding_of_its_formats() {
    for case in cases() {
        let error = case.error(&mut case.open(&options(Precision::Fast, None, None)));
        // 16- and 32-bit weights multiply unrounded activations: what is left is the 13-bit KV cache. Integer weights
        // multiply activations of 8 bits, on random models of 64 columns that have no redundancy to hide it (golden.rs
        // says what it is on a real one).
        let quantised = case.path.contains("mlx") || case.path.contains("q8_0");
        let bound = if quantised { 0.2 } else { 0.01 };
        println!("{}: relative error {error:.1e}", case.path);
        assert!(error < bound, "{}: {error}", case.path);
    }
}

#[test]
fn weights_packed_at_load_and_a_smaller_kv_cache_stay_usable() {
    // Random weights have no redundancy: four bits of them keep a direction, not the values.
    for (quantize, kv, bound) in [
        (Some(Quantize::Q8), None, 0.998),
        (Some(Quantize::Q4), None, 0.85),
        (None, Some(KvFormat::Q8), 0.99),
    ] {
        for case in cases().iter().filter(|case| ["llama", "qwen3", "gemma2"].contains(&case.path.as_str())) {
            let got = all_logits(&mut case.open(&options(Precision::Fast, quantize, kv)), &case.prompt());
            let want = all_logits(&mut case.open(&options(Precision::F32, None, None)), &case.prompt());
            let cosine = cosine(&got.concat(), &want.concat());
            println!("{} {quantize:?} {kv:?}: cosine {cosine:.5}", case.path);
            assert!(cosine > bound, "{} {quantize:?} {kv:?}: {cosine}", case.path);
        }
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn greedy_continuations_are_those_of_transformers() {
    for case in cases() {
        let mut executor = case.open(&options(Precision::F32, None, None));
        let want = ids(&case.expected["greedy_ids"]);
        assert_eq!(greedy(&mut executor, &case.prompt(), want.len()), want, "{}", case.path);
    }
}

fn greedy(executor: &mut CpuExecutor, prompt: &[u32], count: usize) -> Vec<u32> {
    let (mut batch, mut output, mut out) = (Batch::default(), StepOutput::default(), Vec::new());
    let (mut chunk, mut start) = (prompt.to_vec(), 0);
    while out.len() < count {
        batch.clear();
        batch.push_chunk(&chunk, start, &table());
        batch.sample_last(&SamplingParams::greedy(), History::default());
        executor.execute(&batch, &mut output).expect("a step");
        start += chunk.len();
        chunk = vec![output.rows[0].as_ref().expect("finite").token];
        out.extend_from_slice(&chunk);
    }
    out
}

#[test]
fn every_instruction_set_and_chunking_gives_a_row_the_same_bits() {
    for case in cases() {
        for isa in Isa::available() {
            let mut executor = case.open(&CpuOptions::on(Machine::new(isa, Threads::UpTo(2))));
            let prompt = case.prompt();
            let whole = all_logits(&mut executor, &prompt);
            for chunk in [1, 5, 17] {
                let mut batch = Batch::default();
                for start in (0..prompt.len()).step_by(chunk) {
                    let end = (start + chunk).min(prompt.len());
                    batch.clear();
                    batch.push_chunk(&prompt[start..end], start, &table());
                    batch.score(end - start - 1, 0, &SamplingParams::greedy());
                    executor.forward(&batch).expect("a step");
                    let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(
                        bits(executor.logits(0)),
                        bits(&whole[end - 1]),
                        "{} {isa} {chunk}",
                        case.path
                    );
                }
            }
        }
    }
}

#[test]
fn both_spellings_of_a_configuration_mean_the_same_model() {
    for case in cases() {
        let folder = fixtures().join(&case.path);
        let other = folder.join("config.other-style.json");
        if other.exists() {
            let read = |path: &Path| -> Value {
                serde_json::from_str(&std::fs::read_to_string(path).expect("a config")).expect("JSON")
            };
            let spec = |value: &Value| ropeway_model::DecoderSpec::from_hugging_face(value).expect("a spec");
            assert_eq!(spec(&read(&folder.join("config.json"))), spec(&read(&other)), "{}", case.path);
        }
    }
}
