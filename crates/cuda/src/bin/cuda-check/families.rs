//! Every family's tiny checkpoint against the logits that transformers gives in f32.

use std::path::Path;

use ropeway_cuda::{CudaExecutor, CudaOptions, KvForm};
use ropeway_executor::{Batch, BlockId, Executor, SamplingParams, StepOutput};
use ropeway_weights::Checkpoint;
use serde_json::Value;

use crate::{Failed, Task};

/// What logits may differ by, in units of what transformers' do in bf16.
struct Bounds {
    /// Of a family: of three rows of a model of 32 to 64 columns, so that either error may be a lucky one.
    each: f64,
    mean: f64,
}

impl Bounds {
    fn of(kv: KvForm) -> Self {
        match kv {
            KvForm::Bf16 => Self { each: 1.5, mean: 1.0 },
            KvForm::Q8 => Self { each: 2.5, mean: 1.5 },
        }
    }
}

pub fn check(task: &Task) -> Result<(), Failed> {
    let bounds = Bounds::of(task.options.kv);
    let index = json(task, "index.json")?;
    let (mut wrong, mut errors) = (Vec::new(), Vec::new());
    for entry in index.as_array().into_iter().flatten() {
        let path = entry["path"].as_str().unwrap_or_default();
        let expected = json(task, entry["expected"].as_str().unwrap_or_default())?;
        let mut executor = open(task, path, &expected)?;
        let prompt = ids(&expected["prompt_ids"]);
        let logits = all_logits(&mut executor, &prompt)?;
        let error = error(&expected, &logits);
        let same = chunks_agree(&mut executor, &prompt, &logits)?;
        println!(
            "RES family {path}: {error:.2} of transformers' error in bf16; chunks of 1, 5 and 17 give the same bits: {same}"
        );
        if error.is_nan() || error > bounds.each || !same {
            wrong.push(path.to_owned());
        }
        errors.push(error);
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    println!("RES families: {mean:.2} of transformers' error in bf16 on average");
    if mean.is_nan() || mean > bounds.mean {
        wrong.push("all of them on average".into());
    }
    if wrong.is_empty() { Ok(()) } else { Err(Failed::Wrong(wrong.join(", "))) }
}

fn json(task: &Task, name: &str) -> Result<Value, Failed> {
    read_json(&task.fixtures.join(name))
}

/// A file of JSON.
pub fn read_json(path: &Path) -> Result<Value, Failed> {
    let wrong = |error: String| Failed::Wrong(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))
}

fn open(task: &Task, path: &str, expected: &Value) -> Result<CudaExecutor, Failed> {
    let path = task.fixtures.join(path);
    let checkpoint = Checkpoint::open(&path).map_err(|error| Failed::Wrong(error.to_string()))?;
    let options = CudaOptions {
        context: expected["context"].as_u64().map(|context| context as usize),
        kv_tokens: Some(256),
        quantize: None,
        step_tokens: 64,
        step_rows: 64,
        ..task.options.clone()
    };
    Ok(CudaExecutor::load(&checkpoint, options, &mut |_, _| {})?)
}

/// Token ids.
pub fn ids(value: &Value) -> Vec<u32> {
    value.as_array().into_iter().flatten().filter_map(Value::as_u64).map(|id| id as u32).collect()
}

fn table() -> [BlockId; 2] {
    [BlockId(1), BlockId(0)]
}

fn all_logits(executor: &mut CudaExecutor, prompt: &[u32]) -> Result<Vec<Vec<f32>>, Failed> {
    let mut batch = Batch::default();
    batch.push_chunk(prompt, 0, &table());
    for token in 0..prompt.len() {
        batch.score(token, 0, &SamplingParams::greedy());
    }
    executor.execute(&batch, &mut StepOutput::default())?;
    Ok(executor.logits(prompt.len())?)
}

fn chunks_agree(executor: &mut CudaExecutor, prompt: &[u32], whole: &[Vec<f32>]) -> Result<bool, Failed> {
    let mut same = true;
    for chunk in [1, 5, 17] {
        for start in (0..prompt.len()).step_by(chunk) {
            let end = (start + chunk).min(prompt.len());
            let mut batch = Batch::default();
            batch.push_chunk(&prompt[start..end], start, &table());
            batch.score(end - start - 1, 0, &SamplingParams::greedy());
            executor.execute(&batch, &mut StepOutput::default())?;
            let row = executor.logits(1)?.remove(0);
            same &= row.iter().zip(&whole[end - 1]).all(|(one, other)| one.to_bits() == other.to_bits());
        }
    }
    Ok(same)
}

/// Root mean square of the differences to what transformers gives in f32, in units of what its own are in bf16.
fn error(expected: &Value, logits: &[Vec<f32>]) -> f64 {
    let positions = expected["positions"].as_array().into_iter().flatten();
    let rows = expected["logits"].as_array().into_iter().flatten();
    let of_row = |(position, want): (&Value, &Value)| {
        let got = &logits[position.as_u64().unwrap_or_default() as usize];
        let want: Vec<f64> = want.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        let differences = got.iter().zip(&want).map(|(got, want)| (f64::from(*got) - want).powi(2));
        differences.sum::<f64>() / want.iter().map(|x| x * x).sum::<f64>()
    };
    let errors: Vec<f64> = positions.zip(rows).map(of_row).collect();
    let error = (errors.iter().sum::<f64>() / errors.len() as f64).sqrt();
    error / expected["bf16_error"].as_f64().unwrap_or_default()
}
