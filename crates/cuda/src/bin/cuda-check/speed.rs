//! The speed table: random weights of known shapes through the whole engine, 128 tokens in and 256 out, and one long prompt.

use std::time::{Duration, Instant};

use ropeway_engine::{Event, Handle, Request, Settings, StepRecord, spawn};

use crate::{Failed, Task, models};

const PROMPT: usize = 128;
const ANSWER: usize = 256;
const LONG: usize = 17_616;
/// Long enough for a GPU to cool down: under load it lowers its clocks to stay within its power.
const PAUSE: Duration = Duration::from_secs(2);

pub fn measure(task: &Task) -> Result<(), Failed> {
    for model in models::wanted(task) {
        let start = Instant::now();
        let executor = model.open(&task.options)?;
        println!("RES {} start with random weights: {:.2} s", model.name, start.elapsed().as_secs_f64());
        let (handle, thread) = spawn(Box::new(executor), &Settings::default());
        for streams in [1, 64, 256] {
            let speeds: Result<Vec<f64>, Failed> =
                (0..3).map(|round| throughput(&handle, streams, round)).collect();
            let speeds = speeds?;
            println!("RES {} {streams} streams: {speeds:.0?} output tokens/s", model.name);
            print_round(&handle, model.name, streams);
            print_prompts(&handle, model.name, 1);
        }
        for (what, pause) in [("one after the other", Duration::ZERO), ("after a pause", PAUSE)] {
            let times: Result<Vec<f64>, Failed> =
                (0..3).map(|round| long_prompt(&handle, round, pause)).collect();
            let milliseconds: Vec<f64> = times?.iter().map(|seconds| seconds * 1e3).collect();
            println!("RES {} prompt of {LONG}, {what}: {milliseconds:.0?} ms to the first token", model.name);
        }
        print_prompts(&handle, model.name, 1000);
        host_time(&handle, model.name);
        drop(handle);
        let _ = thread.join();
    }
    Ok(())
}

fn request(tokens: usize, answer: usize, seed: usize) -> Request {
    let prompt = (0..tokens).map(|at| ((at * 7919 + seed * 104_729) % 40_000) as u32).collect();
    Request { speculation: Some(0), ..Request::greedy(prompt, answer) }
}

fn throughput(handle: &Handle, streams: usize, round: usize) -> Result<f64, Failed> {
    let start = Instant::now();
    let wrong = |error: &dyn std::fmt::Display| Failed::Wrong(error.to_string());
    let submitted: Result<Vec<_>, _> = (0..streams)
        .map(|index| handle.submit(request(PROMPT, ANSWER, 1 + round * 1000 + streams * 7 + index)))
        .collect();
    let mut tokens = 0;
    for mut stream in submitted.map_err(|error| wrong(&error))? {
        tokens += stream.collect().tokens.len();
    }
    if tokens != streams * ANSWER {
        return Err(Failed::Wrong(format!("{tokens} tokens instead of {}", streams * ANSWER)));
    }
    Ok(tokens as f64 / start.elapsed().as_secs_f64())
}

fn long_prompt(handle: &Handle, round: usize, pause: Duration) -> Result<f64, Failed> {
    std::thread::sleep(pause);
    let start = Instant::now();
    let mut stream = handle
        .submit(request(LONG, 1, 77 + round + 10 * pause.as_secs() as usize))
        .map_err(|error| Failed::Wrong(error.to_string()))?;
    while let Some(event) = stream.wait() {
        if let Event::Token { .. } = event {
            return Ok(start.elapsed().as_secs_f64());
        }
    }
    Err(Failed::Wrong("the long prompt got no token".into()))
}

/// What the latest steps consisted of: about as many as a round has.
fn print_round(handle: &Handle, name: &str, streams: usize) {
    let records = handle.board().records_after(0);
    let latest = records.iter().rev().skip_while(|step| step.decode_tokens != streams);
    let (prompts, rest): (Vec<&StepRecord>, Vec<&StepRecord>) =
        latest.take(ANSWER + 16).partition(|step| step.prefill_tokens > 0);
    for (what, steps) in [("with prompts", prompts), ("without", rest)] {
        let sum = |of: fn(&StepRecord) -> f64| steps.iter().map(|step| of(step)).sum::<f64>();
        println!(
            "   {name} {streams} streams, {} steps {what}: {} tokens of prompts, {} of streams, {:.1} ms, device {:.1} ms",
            steps.len(),
            sum(|step| step.prefill_tokens as f64),
            sum(|step| step.decode_tokens as f64),
            sum(|step| step.execute.as_secs_f64()) * 1e3,
            sum(|step| step.device.as_secs_f64()) * 1e3
        );
    }
}

/// The latest steps with at least so many tokens of prompts.
fn print_prompts(handle: &Handle, name: &str, least: usize) {
    let records = handle.board().records_after(0);
    for step in records.iter().filter(|step| step.prefill_tokens >= least).rev().take(6) {
        println!("   {name} {step}");
    }
}

/// What the engine itself took in the latest steps of so many streams and nothing else.
fn host_time(handle: &Handle, name: &str) {
    let records = handle.board().records_after(0);
    for rows in [1, 64, 256] {
        let is_meant = |step: &&StepRecord| step.decode_tokens == rows && step.prefill_tokens == 0;
        let steps: Vec<&StepRecord> = records.iter().filter(is_meant).collect();
        let mean = |of: fn(&StepRecord) -> Duration| {
            steps.iter().map(|step| of(step).as_secs_f64()).sum::<f64>() / steps.len().max(1) as f64 * 1e6
        };
        println!(
            "RES {name} {} steps of {rows} rows: plan {:.0} us, launch {:.0} us, commit {:.0} us, execute {:.0} us, device {:.0} us",
            steps.len(),
            mean(|step| step.plan),
            mean(|step| step.launch),
            mean(|step| step.commit),
            mean(|step| step.execute),
            mean(|step| step.device)
        );
    }
}
