//! Output tokens a second over the number of requests at once.

use std::fmt;
use std::time::Instant;

use ropeway_engine::StepRecord;
use serde::Serialize;

use super::Sizes;
use super::lab::{Lab, finish};
use crate::commands::bench::statistics::{median, percentile};
use crate::failure::Failure;

/// Requests measured one after another. They are all alike, so that more of them would give the same rate.
const IN_TURN: usize = 6;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Throughput {
    prompt_tokens: usize,
    new_tokens: usize,
    /// The same requests, each after the end of the one before.
    one_after_another_tok_s: f64,
    points: Vec<Point>,
}

#[derive(Debug, Serialize)]
struct Point {
    requests: usize,
    tok_s: f64,
    /// Against one after another.
    speedup: f64,
    first_token_p50_ms: f64,
    first_token_p99_ms: f64,
    /// Of a step without prompts: time of the device, and of the host to plan, launch and commit it.
    device_ms: f64,
    host_ms: f64,
}

/// All measurements of one number of requests.
#[derive(Default)]
struct Runs {
    tok_s: Vec<f64>,
    first_token_ms: Vec<f64>,
    device_ms: Vec<f64>,
    host_ms: Vec<f64>,
}

pub fn measure(lab: &mut Lab, sizes: &Sizes) -> Result<Throughput, Failure> {
    let counts: Vec<usize> = sizes.requests.iter().copied().filter(|count| *count > 0).collect();
    let mut alone = Vec::new();
    let mut runs: Vec<Runs> = counts.iter().map(|_| Runs::default()).collect();
    for _ in 0..sizes.repeat {
        alone.push(one_after_another(lab, sizes)?);
        for (count, runs) in counts.iter().zip(&mut runs) {
            at_once(lab, sizes, *count, runs)?;
        }
    }
    let one_after_another_tok_s = median(alone);
    let points = counts.iter().zip(runs).map(|(count, runs)| runs.point(*count, one_after_another_tok_s));
    Ok(Throughput {
        prompt_tokens: sizes.prompt,
        new_tokens: sizes.new,
        one_after_another_tok_s,
        points: points.collect(),
    })
}

fn one_after_another(lab: &mut Lab, sizes: &Sizes) -> Result<f64, Failure> {
    let start = Instant::now();
    for _ in 0..IN_TURN {
        finish(lab.submit(sizes.prompt, sizes.new)?)?;
    }
    Ok((IN_TURN * sizes.new) as f64 / start.elapsed().as_secs_f64())
}

fn at_once(lab: &mut Lab, sizes: &Sizes, count: usize, runs: &mut Runs) -> Result<(), Failure> {
    let prompts: Vec<Vec<u32>> = (0..count).map(|_| lab.prompt(sizes.prompt)).collect();
    let (start, before) = (Instant::now(), lab.steps());
    let streams: Vec<_> =
        prompts.into_iter().map(|prompt| lab.submit_prompt(prompt, sizes.new)).collect::<Result<_, _>>()?;
    for stream in streams {
        runs.first_token_ms.push(finish(stream)?.first_token.as_secs_f64() * 1e3);
    }
    runs.tok_s.push((count * sizes.new) as f64 / start.elapsed().as_secs_f64());
    runs.note(&lab.steps_since(before));
    Ok(())
}

impl Runs {
    fn note(&mut self, steps: &[StepRecord]) {
        for step in steps.iter().filter(|step| step.prefill_tokens == 0) {
            self.device_ms.push(step.device.as_secs_f64() * 1e3);
            self.host_ms.push(step.host().as_secs_f64() * 1e3);
        }
    }

    fn point(self, requests: usize, one_after_another: f64) -> Point {
        let tok_s = median(self.tok_s);
        Point {
            requests,
            tok_s,
            speedup: tok_s / one_after_another,
            first_token_p50_ms: percentile(self.first_token_ms.clone(), 0.5),
            first_token_p99_ms: percentile(self.first_token_ms, 0.99),
            device_ms: median(self.device_ms),
            host_ms: median(self.host_ms),
        }
    }
}

impl fmt::Display for Throughput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "throughput: {} tokens in, {} out", self.prompt_tokens, self.new_tokens)?;
        writeln!(f, "  one after another  {:>8.1} tok/s", self.one_after_another_tok_s)?;
        for point in &self.points {
            writeln!(
                f,
                "  {:>4} at once       {:>8.1} tok/s  {:>5.2}x   first token p50 {:>7.0} ms, p99 {:>7.0} ms   \
                 step {:>6.2} ms, host {:>5.2} ms",
                point.requests,
                point.tok_s,
                point.speedup,
                point.first_token_p50_ms,
                point.first_token_p99_ms,
                point.device_ms,
                point.host_ms
            )?;
        }
        Ok(())
    }
}
