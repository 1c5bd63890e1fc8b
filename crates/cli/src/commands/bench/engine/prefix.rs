//! How much sooner the first token comes when the beginning of the prompt is cached: in memory, and on disk where keys and
//! values are kept there (`--kv-disk`).

use std::fmt;

use ropeway_engine::Usage;
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
    /// With the text on disk and not in memory.
    disk_ms: Option<f64>,
    disk_speedup: Option<f64>,
}

/// All measurements of one length.
#[derive(Default)]
struct Runs {
    cold_ms: Vec<f64>,
    cached_ms: Vec<f64>,
    disk_ms: Vec<f64>,
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
        let disk_ms = (!runs.disk_ms.is_empty()).then(|| median(runs.disk_ms));
        let (speedup, disk_speedup) = (cold_ms / cached_ms, disk_ms.map(|disk_ms| cold_ms / disk_ms));
        Point { cached_tokens: runs.cached_tokens, cold_ms, cached_ms, speedup, disk_ms, disk_speedup }
    });
    Ok(Prefix { new_prompt_tokens: QUESTION, points: points.collect() })
}

/// The first request computes what the second finds.
fn cold_and_cached(lab: &mut Lab, tokens: usize, runs: &mut Runs) -> Result<(), Failure> {
    let text = lab.prompt(tokens);
    let ask = |lab: &mut Lab, times: &mut Vec<f64>| -> Result<Usage, Failure> {
        let prompt = [&text[..], &lab.prompt(QUESTION)].concat();
        let usage = finish(lab.submit_prompt(prompt, 1)?)?;
        times.push(usage.first_token.as_secs_f64() * 1e3);
        Ok(usage)
    };
    ask(lab, &mut runs.cold_ms)?;
    runs.cached_tokens = ask(lab, &mut runs.cached_ms)?.cached;
    if lab.move_to_disk(&text) {
        let usage = ask(lab, &mut runs.disk_ms)?;
        if usage.fetched + QUESTION < usage.cached {
            return Err(Failure::new("the text was not on disk", "give --kv-disk more room"));
        }
    }
    Ok(())
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "prefix: first token of a cached text and {} new tokens", self.new_prompt_tokens)?;
        for Point { cached_tokens, cold_ms, cached_ms, speedup, disk_ms, disk_speedup } in &self.points {
            write!(
                f,
                "  {cached_tokens:>6} cached   {cold_ms:>7.0} -> {cached_ms:>6.1} ms   {speedup:>5.1}x"
            )?;
            if let (Some(disk_ms), Some(disk_speedup)) = (disk_ms, disk_speedup) {
                write!(f, "   on disk {disk_ms:>6.1} ms   {disk_speedup:>5.1}x")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
