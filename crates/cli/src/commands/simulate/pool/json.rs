//! What pools came to, for programs.

use ropeway_testkit::simulate::Times;
use serde_json::{Map, Value, json};

use super::super::report::class_json;
use super::report::{Replayed, Subject, groups};
use super::scenario::{Run, Scenario};

/// Users on pools.
pub fn users(subject: &Subject<'_>, runs: &[Run]) -> Value {
    json!({
        "machine": subject.hardware.name,
        "seed": subject.seed,
        "runs": runs.iter().map(run).collect::<Vec<_>>(),
    })
}

/// A trace on pools.
pub fn trace(subject: &Subject<'_>, replayed: &Replayed<'_>, runs: &[Run]) -> Value {
    json!({
        "trace": replayed.name(),
        "requests": replayed.trace.len(),
        "cut_requests": replayed.cut,
        "speed": replayed.speed,
        "machine": subject.hardware.name,
        "endless": {
            "prompt_blocks": replayed.endless.blocks,
            "repeated_blocks": replayed.endless.repeated,
            "findable_blocks": replayed.endless.findable,
        },
        "runs": runs.iter().map(run).collect::<Vec<_>>(),
    })
}

fn run(run: &Run) -> Value {
    let outcome = &run.outcome;
    let mut by_class = Map::new();
    by_class.insert("all".into(), class_json(&outcome.everyone()));
    for (name, seen) in groups(run) {
        by_class.insert(name.into(), class_json(seen));
    }
    let windows = outcome.throughput.windows;
    json!({
        "scenario": run.scenario.map(Scenario::name),
        "label": run.label,
        "upstreams": run.servers,
        "load": run.load,
        "requests": outcome.asked,
        "arrivals_s": outcome.throughput.seconds,
        "simulated_s": outcome.elapsed.as_secs_f64(),
        "tok_s": outcome.throughput.tokens_per_second(),
        "utilisation": outcome.throughput.utilisation(),
        "busiest_to_mean": outcome.throughput.imbalance(),
        "prompt_tokens": outcome.prompt_tokens,
        "cached_tokens": outcome.cached_tokens,
        "expected_cached_tokens": outcome.expected_tokens,
        "prompt_blocks": outcome.prompt_blocks,
        "cached_blocks": outcome.cached_blocks,
        "deaths": outcome.deaths,
        "moved": outcome.moved,
        "retried": outcome.retried,
        "lost": outcome.lost,
        "gap_s": gaps(&outcome.gaps),
        "most_waiting": outcome.most_waiting,
        "most_waiting_at_an_upstream": outcome.most_waiting_there,
        "window": { "min": windows.least, "mean": windows.mean, "max": windows.most },
        "classes": by_class,
    })
}

fn gaps(times: &Times) -> Value {
    json!({ "p50": times.quantile(0.5), "p99": times.quantile(0.99), "max": times.longest().as_secs_f64() })
}
