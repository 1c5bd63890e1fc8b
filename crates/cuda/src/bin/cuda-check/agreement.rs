//! The default model, if its file is given: how far its predictions are from those in f32, beside how far transformers' are in bf16.

use std::path::Path;

use ropeway_cpu::{CpuExecutor, CpuOptions};
use ropeway_cuda::{CudaExecutor, CudaOptions};
use ropeway_executor::{Batch, BlockId, Executor, SamplingParams, StepOutput};
use ropeway_model::{LoadOptions, Precision, StepLimits};
use ropeway_weights::Checkpoint;
use serde_json::Value;

use crate::families::{ids, read_json};
use crate::{Failed, Task};

/// Tokens of a chunk, each of which is scored.
const CHUNK: usize = 64;

/// Longest text.
const CONTEXT: usize = 2048;

/// What a model thought of a token that a text goes on with.
#[derive(Clone, Copy)]
struct Scored {
    logprob: f64,
    /// The token that it held to be the likeliest.
    likeliest: u32,
}

/// How tokens were scored, in comparison with f32.
struct Agreement {
    tokens: usize,
    /// How often the likeliest token is the same.
    agreed: usize,
    /// Mean absolute difference of their log-probabilities.
    difference: f64,
}

impl Agreement {
    fn new(fast: &[Scored], exact: &[Scored]) -> Self {
        let differences = fast.iter().zip(exact).map(|(fast, exact)| (fast.logprob - exact.logprob).abs());
        Self {
            tokens: fast.len(),
            agreed: fast.iter().zip(exact).filter(|(fast, exact)| fast.likeliest == exact.likeliest).count(),
            difference: differences.sum::<f64>() / fast.len() as f64,
        }
    }
}

/// The tokens that predictions are compared for.
struct Texts {
    /// Prompts with what was recorded behind them, and where that begins.
    answers: Vec<(Vec<u32>, usize)>,
    text: Vec<u32>,
}

impl Texts {
    fn read(folder: &Path) -> Result<Self, Failed> {
        let items = read_json(&folder.join("smollm2_greedy.json"))?;
        let answer = |item: &Value| {
            let prompt = ids(&item["prompt_ids"]);
            let answered = prompt.len();
            ([prompt, ids(&item["greedy_ids"])].concat(), answered)
        };
        let answers = items["items"].as_array().into_iter().flatten().map(answer).collect();
        Ok(Self { answers, text: ids(&read_json(&folder.join("ppl.json"))?["tokens"]) })
    }

    /// What a model thinks of all answers, and of the text.
    fn score(&self, executor: &mut dyn Executor) -> Result<[Vec<Scored>; 2], Failed> {
        let mut answers = Vec::new();
        for (tokens, answered) in &self.answers {
            answers.extend_from_slice(&score(executor, tokens)?[answered - 1..]);
        }
        Ok([answers, score(executor, &self.text)?])
    }
}

pub fn check(task: &Task) -> Result<(), Failed> {
    let Some(path) = &task.smollm2 else {
        println!("   skipped: --smollm2 names no file of the default model");
        return Ok(());
    };
    let folder = task.fixtures.join("../../golden");
    let texts = Texts::read(&folder)?;
    let recorded = read_json(&folder.join("smollm2_bf16.json"))?;
    let checkpoint = Checkpoint::open(path).map_err(|error| Failed::Wrong(error.to_string()))?;
    let fast = texts.score(&mut open(task, &checkpoint)?)?;
    let exact = texts.score(&mut open_exact(path)?)?;
    let mut wrong = Vec::new();
    for ((name, fast), exact) in ["answers", "text"].into_iter().zip(fast).zip(exact) {
        let found = Agreement::new(&fast, &exact);
        let bound = recorded[name]["logprob_difference"].as_f64().unwrap_or_default();
        println!(
            "RES agreement with f32, {name}: {} of {} likeliest tokens (transformers in bf16: {}), log-probabilities differ by {:.4} (bf16: {bound:.4})",
            found.agreed, found.tokens, recorded[name]["agreed"], found.difference
        );
        if found.difference.is_nan() || found.difference > bound {
            wrong.push(name);
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Failed::Wrong(format!("further from f32: {}", wrong.join(", "))))
    }
}

fn open(task: &Task, checkpoint: &Checkpoint) -> Result<CudaExecutor, Failed> {
    let options = CudaOptions {
        context: Some(CONTEXT),
        kv_tokens: Some(CONTEXT),
        step_tokens: CHUNK,
        step_rows: CHUNK,
        ..task.options.clone()
    };
    Ok(CudaExecutor::load(checkpoint, options, &mut |_, _| {})?)
}

/// The CPU's path in f32, which reproduces what transformers gives in f32 (`cpu/tests/golden.rs`).
fn open_exact(path: &Path) -> Result<CpuExecutor, Failed> {
    let options = CpuOptions {
        load: LoadOptions { precision: Precision::F32, quantize: None },
        context: Some(CONTEXT),
        step: StepLimits { tokens: CHUNK, rows: CHUNK },
        ..CpuOptions::default()
    };
    CpuExecutor::open(path, &options, &mut |_, _| {}).map_err(|error| Failed::Wrong(error.to_string()))
}

/// Every token but the first.
fn score(executor: &mut dyn Executor, tokens: &[u32]) -> Result<Vec<Scored>, Failed> {
    let table: Vec<BlockId> = (0..CONTEXT.div_ceil(32) as u32).map(BlockId).collect();
    let params = SamplingParams { logprobs: Some(1), ..SamplingParams::greedy() };
    let (mut batch, mut output, mut scored) = (Batch::default(), StepOutput::default(), Vec::new());
    for start in (0..tokens.len() - 1).step_by(CHUNK) {
        let end = (start + CHUNK).min(tokens.len() - 1);
        batch.clear();
        batch.push_chunk(&tokens[start..end], start, &table[..end.div_ceil(32)]);
        for (row, next) in tokens[start + 1..=end].iter().enumerate() {
            batch.score(row, *next, &params);
        }
        executor.execute(&batch, &mut output)?;
        for row in &output.rows {
            let row = row.as_ref().map_err(|error| Failed::Wrong(format!("a row failed: {error:?}")))?;
            scored.push(Scored { logprob: f64::from(row.logprob), likeliest: row.top[0].0 });
        }
    }
    Ok(scored)
}
