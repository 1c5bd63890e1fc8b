//! How much sooner the first token comes when the beginning of the prompt is cached.

use std::fmt;

use serde::Serialize;

use super::Sizes;
use super::lab::{Lab, finish};
use crate::commands::bench::statistics::median;
use crate::failure::Failure;

/// New tokens after the cached part: a short question about a long text.
const QUESTION: usize = 8;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Prefix {
    new_prompt_tokens: usize,
    points: Vec<Point>,
}

#[derive(Debug, Serialize)]
struct Point {
    cached_tokens: usize,
    cold_ms: f64,
    cached_ms: f64,
    speedup: f64,
}

/// All measurements of one length.
#[derive(Default)]
struct Runs {
    cold_ms: Vec<f64>,
    cached_ms: Vec<f64>,
    cached_tokens: usize,
}

pub fn measure(lab: &mut Lab, sizes: &Sizes) -> Result<Prefix, Failure> {
    let mut runs: Vec<Runs> = sizes.cached.iter().map(|_| Runs::default()).collect();
    for _ in 0..sizes.repeat {
        for (tokens, runs) in sizes.cached.iter().zip(&mut runs) {
            cold_and_cached(lab, *tokens, runs)?;
        }
    }
    let points = runs.into_iter().map(|runs| {
        let (cold_ms, cached_ms) = (median(runs.cold_ms), median(runs.cached_ms));
        Point { cached_tokens: runs.cached_tokens, cold_ms, cached_ms, speedup: cold_ms / cached_ms }
    });
    Ok(Prefix { new_prompt_tokens: QUESTION, points: points.collect() })
}

/// The first request computes what the second finds.
fn cold_and_cached(lab: &mut Lab, tokens: usize, runs: &mut Runs) -> Result<(), Failure> {
    let text = lab.prompt(tokens);
    for cold in [true, false] {
        let prompt = [&text[..], &lab.prompt(QUESTION)].concat();
        let usage = finish(lab.submit_prompt(prompt, 1)?)?;
        let times = if cold { &mut runs.cold_ms } else { &mut runs.cached_ms };
        times.push(usage.first_token.as_secs_f64() * 1e3);
        runs.cached_tokens = usage.cached;
    }
    Ok(())
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "prefix: first token of a cached text and {} new tokens", self.new_prompt_tokens)?;
        for Point { cached_tokens, cold_ms, cached_ms, speedup } in &self.points {
            writeln!(
                f,
                "  {cached_tokens:>6} cached   {cold_ms:>7.0} -> {cached_ms:>6.1} ms   {speedup:>5.1}x"
            )?;
        }
        Ok(())
    }
}
