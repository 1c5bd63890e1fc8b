//! Tokens and log-probabilities of a request are the same to the bit alone, in a crowd of 256, from the prefix cache, in chunks of its prompt, and
//! preempted and resumed. All through the whole engine.

use ropeway_cuda::CudaOptions;
use ropeway_cuda::kernels::BLOCK;
use ropeway_engine::{Completion, Handle, Request, Settings, spawn};
use ropeway_executor::{SamplingParams, Seed};

use crate::models::Model;
use crate::{Failed, Task, models};

/// Requests of the crowd.
const CROWD: usize = 256;

/// Every 17th of them is computed alone as well: 16, with the first and the last.
const PICKED: usize = 17;

/// Tokens of an answer.
const ANSWER: usize = 40;

/// Tokens of a step that most prompts don't fit into.
const CHUNK: usize = 96;

/// Tokens of keys and values for the whole crowd, and for so few of it that some are preempted when they grow.
const KV_TOKENS: usize = 300_000;
const TIGHT_KV_TOKENS: usize = 8192;

/// An answer, every log-probability as its bits.
type Bits = Vec<(u32, u32)>;

pub fn check(task: &Task) -> Result<(), Failed> {
    models::wanted(task).try_for_each(|model| check_model(task, model))
}

fn check_model(task: &Task, model: &Model) -> Result<(), Failed> {
    let vocab = model.spec()?.vocab;
    let requests: Vec<Request> = (0..CROWD).map(|index| request(index, vocab)).collect();
    let plain = CudaOptions { kv_tokens: Some(KV_TOKENS), ..task.options.clone() };
    let chunked = CudaOptions { step_tokens: CHUNK, ..plain.clone() };
    let tight = CudaOptions { kv_tokens: Some(TIGHT_KV_TOKENS), ..plain.clone() };
    let (alone, crowd, cached) = with_engine(model, &plain, |handle| {
        Ok((alone(handle, &requests)?, together(handle, &requests)?, together(handle, &requests)?))
    })?;
    let chunked = with_engine(model, &chunked, |handle| together(handle, &requests))?;
    let tight = with_engine(model, &tight, |handle| together(handle, &requests))?;
    if cached.iter().any(|answer| answer.usage.prompt > BLOCK && answer.usage.cached == 0) {
        return Err(Failed::Wrong("a prompt was not cached".into()));
    }
    if tight.iter().all(|answer| answer.usage.preemptions == 0) {
        return Err(Failed::Wrong("nobody was preempted".into()));
    }
    let mut same = true;
    for (how, answers) in [
        ("in a crowd", crowd),
        ("from the prefix cache", cached),
        ("in chunks of prompts", chunked),
        ("preempted and resumed", tight),
    ] {
        let equal =
            alone.iter().zip(picked(&answers)).filter(|(alone, answer)| **alone == bits(answer)).count();
        println!("RES {} answers alone == {how}: {equal} of {}", model.name, alone.len());
        same &= equal == alone.len();
    }
    if same {
        Ok(())
    } else {
        Err(Failed::Wrong(format!("{}: an answer depends on its company", model.name)))
    }
}

/// Runs `ask` with an engine on the model.
fn with_engine<T>(
    model: &Model,
    options: &CudaOptions,
    ask: impl FnOnce(&Handle) -> Result<T, Failed>,
) -> Result<T, Failed> {
    let executor = model.open(options)?;
    let (handle, thread) = spawn(Box::new(executor), &Settings::default());
    let result = ask(&handle);
    drop(handle);
    let _ = thread.join();
    result
}

/// Prompts of different lengths, some greedy and some not.
fn request(index: usize, vocab: usize) -> Request {
    let tokens = 20 + index * 37 % 700;
    let prompt = (0..tokens).map(|at| ((at * 7919 + index * 104_729) % vocab) as u32).collect();
    let params = match index % 2 {
        0 => SamplingParams::greedy(),
        _ => SamplingParams {
            temperature: 0.8,
            top_p: 0.9,
            seed: Seed(index as u64),
            ..SamplingParams::default()
        },
    };
    let params = SamplingParams { logprobs: Some(0), ..params };
    Request { params, ..Request::greedy(prompt, ANSWER) }
}

fn picked<T>(all: &[T]) -> impl Iterator<Item = &T> {
    all.iter().step_by(PICKED)
}

/// Some of them, each after the end of the one before, and none finding anything in the cache.
fn alone(handle: &Handle, requests: &[Request]) -> Result<Vec<Bits>, Failed> {
    let salted = picked(requests).map(|request| Request { salt: b"alone".into(), ..request.clone() });
    salted.map(|request| Ok(bits(&together(handle, &[request])?[0]))).collect()
}

/// All at once.
fn together(handle: &Handle, requests: &[Request]) -> Result<Vec<Completion>, Failed> {
    let streams: Result<Vec<_>, _> = requests.iter().map(|request| handle.submit(request.clone())).collect();
    let streams = streams.map_err(|error| Failed::Wrong(error.to_string()))?;
    Ok(streams.into_iter().map(|mut stream| stream.collect()).collect())
}

fn bits(answer: &Completion) -> Bits {
    answer.tokens.iter().map(|sampled| (sampled.token, sampled.logprob.to_bits())).collect()
}
