//! From rounds to figures.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::ask::Answer;
use super::load::Round;
use crate::commands::bench::statistics::{Sorted, median};
use crate::commands::bench::trio::Trio;

/// Quantiles kept for plots: every percent.
const STEPS: u32 = 100;

/// What a server was asked to bear.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// So many requests open at all times.
    Concurrency(usize),
    /// So many requests a second, at independent times.
    Rate(f64),
}

impl Load {
    /// The number in it.
    pub fn amount(self) -> f64 {
        match self {
            Load::Concurrency(users) => users as f64,
            Load::Rate(rate) => rate,
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Load::Concurrency(users) => f.pad(&format!("{users} at once")),
            Load::Rate(rate) => f.pad(&format!("{rate}/s")),
        }
    }
}

/// How long something took, in milliseconds, over all repeats.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Spread {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
    /// Every percent from 0 to 100.
    pub quantiles: Vec<f64>,
}

impl Spread {
    /// Of values in seconds; `None` if there are none.
    fn of(seconds: Vec<f64>) -> Option<Spread> {
        if seconds.is_empty() {
            return None;
        }
        let sorted = Sorted::new(seconds.into_iter().map(|seconds| seconds * 1e3).collect());
        let quantiles = (0..=STEPS).map(|step| sorted.percentile(f64::from(step) / f64::from(STEPS)));
        Some(Spread {
            mean: sorted.mean(),
            p50: sorted.percentile(0.5),
            p90: sorted.percentile(0.9),
            p99: sorted.percentile(0.99),
            max: sorted.percentile(1.0),
            quantiles: quantiles.collect(),
        })
    }
}

/// Requests that failed for the same reason.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Failed {
    pub count: usize,
    /// What one of them was told.
    pub example: String,
}

/// One load: rates are medians over repeats, times are pooled.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Point {
    pub load: Load,
    pub repeats: usize,
    pub completed: usize,
    pub errors: BTreeMap<String, Failed>,
    pub output_tok_s: f64,
    /// Of every repeat.
    pub output_tok_s_each: Vec<f64>,
    pub requests_s: f64,
    /// Means, as the server counts them.
    pub prompt_tokens: f64,
    pub cached_tokens: f64,
    pub output_tokens: f64,
    pub first_token_ms: Option<Spread>,
    /// Between two pieces of text, which usually are two tokens.
    pub inter_token_ms: Option<Spread>,
    pub total_ms: Option<Spread>,
    /// Share of one processor that the load generator used.
    pub own_cpu: f64,
}

impl Point {
    /// What the rounds at one load came to.
    pub fn of(load: Load, rounds: &[Round]) -> Point {
        let rate = |count: &dyn Fn(&Round) -> usize| -> Vec<f64> {
            rounds.iter().map(|round| count(round) as f64 / round.wall.as_secs_f64().max(1e-9)).collect()
        };
        let tokens = |round: &Round| round.answers.iter().map(|answer| answer.output_tokens).sum();
        let output_tok_s_each = rate(&tokens);
        let answers = || rounds.iter().flat_map(|round| &round.answers);
        let mean = |of: fn(&Answer) -> usize| {
            answers().map(of).sum::<usize>() as f64 / answers().count().max(1) as f64
        };
        let seconds = |times: &dyn Fn(&Answer) -> f64| Spread::of(answers().map(times).collect());
        let wall: f64 = rounds.iter().map(|round| round.wall.as_secs_f64()).sum();
        let cpu: f64 = rounds.iter().map(|round| round.cpu.as_secs_f64()).sum();
        Point {
            load,
            repeats: rounds.len(),
            completed: answers().count(),
            errors: errors(rounds),
            output_tok_s: median_or_none(&output_tok_s_each),
            output_tok_s_each,
            requests_s: median_or_none(&rate(&|round| round.answers.len())),
            prompt_tokens: mean(|answer| answer.prompt_tokens.unwrap_or(0)),
            cached_tokens: mean(|answer| answer.cached_tokens.unwrap_or(0)),
            output_tokens: mean(|answer| answer.output_tokens),
            first_token_ms: seconds(&|answer| answer.first_token.as_secs_f64()),
            inter_token_ms: Spread::of(answers().flat_map(|answer| answer.gaps.iter().copied()).collect()),
            total_ms: seconds(&|answer| answer.total.as_secs_f64()),
            own_cpu: cpu / wall.max(1e-9),
        }
    }

    /// Requests that failed.
    pub fn failed(&self) -> usize {
        self.errors.values().map(|failed| failed.count).sum()
    }
}

fn median_or_none(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { median(values.to_vec()) }
}

fn errors(rounds: &[Round]) -> BTreeMap<String, Failed> {
    let mut errors: BTreeMap<String, Failed> = BTreeMap::new();
    for fault in rounds.iter().flat_map(|round| &round.faults) {
        let failed = errors.entry(fault.kind()).or_default();
        failed.count += 1;
        failed.example = fault.to_string();
    }
    errors
}

/// Recorded traffic that a server was given.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Replayed {
    pub file: String,
    /// How many times faster than it was recorded.
    pub speed: f64,
    pub requests: usize,
    /// Of these, how many were cut to the server's context.
    pub cut_requests: usize,
}

/// Everything about one server, as it is written to a file.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Run {
    /// Version of this program.
    pub ropeway: String,
    /// What it is called in comparisons.
    pub label: String,
    pub url: String,
    pub model: String,
    pub endpoint: String,
    /// Lengths in tokens, as they were asked for.
    pub prompt: String,
    pub output: String,
    pub shared_prefix: usize,
    /// The recorded traffic that took the place of the above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Replayed>,
    pub seed: u64,
    /// Whether every prompt had exactly as many tokens as asked for.
    pub exact_prompts: bool,
    /// Whether Ctrl-C ended it early.
    pub interrupted: bool,
    pub points: Vec<Point>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trio: Option<Trio>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::client::Fault;
    use super::*;

    fn round(seconds: u64, faults: Vec<Fault>) -> Round {
        let answer = |ms: u64| Answer {
            first_token: Duration::from_millis(ms),
            total: Duration::from_millis(10 * ms),
            gaps: vec![0.001, 0.002],
            prompt_tokens: Some(100),
            cached_tokens: None,
            output_tokens: 60,
        };
        let answers = (1..=10).map(|index| answer(10 * index)).collect();
        Round { answers, faults, wall: Duration::from_secs(seconds), cpu: Duration::from_millis(100) }
    }

    #[test]
    fn rates_are_medians_of_rounds_and_times_are_pooled() {
        let rounds = [round(1, vec![]), round(2, vec![]), round(100, vec![])];
        let point = Point::of(Load::Concurrency(10), &rounds);
        assert!((point.output_tok_s - 300.0).abs() < 1e-9 && (point.requests_s - 5.0).abs() < 1e-9);
        let first = point.first_token_ms.unwrap();
        assert_eq!((first.p50, first.p90, first.max, first.quantiles.len()), (50.0, 90.0, 100.0, 101));
        assert_eq!((point.completed, point.prompt_tokens, point.output_tokens), (30, 100.0, 60.0));
        assert!((point.own_cpu - 0.3 / 103.0).abs() < 1e-9);
    }

    #[test]
    fn errors_are_counted_by_kind_and_nothing_measured_is_no_number() {
        let status = |status| Fault::Status { status, message: "busy".into() };
        let faults = vec![status(503), status(503), Fault::Connect("refused".into())];
        let failed = Round { answers: vec![], ..round(1, faults) };
        let point = Point::of(Load::Rate(2.5), &[failed]);
        assert_eq!((point.errors["http 503"].count, point.failed()), (2, 3));
        assert_eq!((point.first_token_ms.clone(), point.output_tok_s), (None, 0.0));
        let back: Point = serde_json::from_str(&serde_json::to_string(&point).unwrap()).unwrap();
        assert_eq!(back, point);
    }
}
