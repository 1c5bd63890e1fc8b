//! A simulation's result, as a table and as JSON.

use std::io::{self, Write};

use ropeway_engine::Class;
use ropeway_testkit::simulate::{Experience, Times};
use serde_json::{Map, Value, json};

use super::{Outcome, speculation};
use crate::output::Output;

/// What was simulated.
pub struct Subject {
    pub workload: &'static str,
    pub requests: usize,
    pub rate: f64,
    pub seed: u64,
    /// Seconds per step, token, row and pair.
    pub cost: [f64; 5],
}

/// Prints a table per policy.
pub fn print(output: &mut Output, subject: &Subject, outcomes: &[Outcome]) -> io::Result<()> {
    let Subject { workload, requests, rate, seed, cost: [step, token, row, pair, read] } = subject;
    writeln!(output, "{workload}: {requests} requests, {rate:.2} a second, seed {seed}")?;
    writeln!(
        output,
        "a step costs {:.2} ms + {:.3} ms a token + {:.3} ms a stream + {:.2} us per 1,000 attended positions \
         + {:.2} us per 1,000 positions read",
        step * 1e3,
        token * 1e3,
        row * 1e3,
        pair * 1e9,
        read * 1e9,
    )?;
    for outcome in outcomes {
        writeln!(output)?;
        print_policy(output, outcome)?;
    }
    Ok(())
}

fn print_policy(output: &mut Output, outcome: &Outcome) -> io::Result<()> {
    let Outcome { policy, report, .. } = outcome;
    writeln!(
        output,
        "{:<9} {:.1} tok/s, busy {:.0} %, batch {:.1}, kv {:.0} %, preempted {}, cached {:.0} % of prompts",
        policy.name(),
        report.tokens_per_second(),
        100.0 * report.utilisation(),
        report.mean_running(),
        100.0 * report.mean_held(),
        report.preempted,
        100.0 * report.cached as f64 / (report.cached + report.prefilled).max(1) as f64,
    )?;
    speculation::print(output, outcome)?;
    writeln!(
        output,
        "  {:<11} {:>8} {:>8} |{:>23} |{:>15} |{:>15} |{:>15}",
        "", "answered", "refused", "first token", "between tokens", "total", "queued"
    )?;
    writeln!(
        output,
        "  {:<11} {:>8} {:>8} |{:>7} {:>7} {:>7} |{:>7} {:>7} |{:>7} {:>7} |{:>7} {:>7}",
        "class", "", "", "p50", "p90", "p99", "p50", "p99", "p50", "p99", "p50", "p99"
    )?;
    let present = classes(report);
    if present.len() != 1 {
        print_class(output, "all", &report.everyone())?;
    }
    for (class, experience) in present {
        print_class(output, class.name(), experience)?;
    }
    Ok(())
}

fn print_class(output: &mut Output, name: &str, seen: &Experience) -> io::Result<()> {
    let at = |times: &Times, share: f64| seconds(times.quantile(share));
    writeln!(
        output,
        "  {name:<11} {:>8} {:>8} |{:>7} {:>7} {:>7} |{:>7} {:>7} |{:>7} {:>7} |{:>7} {:>7}",
        seen.answered,
        seen.rejected,
        at(&seen.first_token, 0.5),
        at(&seen.first_token, 0.9),
        at(&seen.first_token, 0.99),
        at(&seen.inter_token, 0.5),
        at(&seen.inter_token, 0.99),
        at(&seen.total, 0.5),
        at(&seen.total, 0.99),
        at(&seen.queued, 0.5),
        at(&seen.queued, 0.99),
    )
}

/// Everything, for programs.
pub fn json(subject: &Subject, outcomes: &[Outcome]) -> Value {
    json!({
        "workload": subject.workload,
        "requests": subject.requests,
        "rate": subject.rate,
        "seed": subject.seed,
        "cost": { "step": subject.cost[0], "token": subject.cost[1], "row": subject.cost[2], "pair": subject.cost[3], "read": subject.cost[4] },
        "policies": outcomes.iter().map(policy_json).collect::<Vec<_>>(),
    })
}

fn policy_json(outcome: &Outcome) -> Value {
    let Outcome { policy, report, .. } = outcome;
    let mut by_class = Map::new();
    by_class.insert("all".into(), class_json(&report.everyone()));
    for (class, experience) in classes(report) {
        by_class.insert(class.name().into(), class_json(experience));
    }
    json!({
        "policy": policy.name(),
        "simulated_s": report.elapsed.as_secs_f64(),
        "steps": report.steps,
        "tok_s": report.tokens_per_second(),
        "utilisation": report.utilisation(),
        "mean_batch": report.mean_running(),
        "kv_use": report.mean_held(),
        "preempted": report.preempted,
        "generated_tokens": report.generated,
        "prefilled_tokens": report.prefilled,
        "cached_tokens": report.cached,
        "speculation": speculation::json(outcome),
        "classes": by_class,
    })
}

/// What requests experienced.
pub fn class_json(seen: &Experience) -> Value {
    let times = |times: &Times| {
        json!({
            "p50": times.quantile(0.5),
            "p90": times.quantile(0.9),
            "p99": times.quantile(0.99),
            "max": times.longest().as_secs_f64(),
        })
    };
    json!({
        "answered": seen.answered,
        "rejected": seen.rejected,
        "failed": seen.failed,
        "first_token_s": times(&seen.first_token),
        "inter_token_s": times(&seen.inter_token),
        "total_s": times(&seen.total),
        "queued_s": times(&seen.queued),
    })
}

/// The classes that anyone came with.
fn classes(report: &ropeway_testkit::simulate::Report) -> Vec<(Class, &Experience)> {
    let all = Class::ALL.into_iter().zip(&report.classes);
    all.filter(|(_, seen)| seen.answered + seen.rejected > 0).collect()
}

/// A time in at most seven characters.
pub fn seconds(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{:.0} ms", seconds * 1e3)
    } else if seconds < 100.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{seconds:.0} s")
    }
}
