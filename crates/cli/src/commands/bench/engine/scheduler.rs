//! What deciding costs: the time to plan and to commit a step with many running and many more waiting.

use std::fmt;
use std::time::Duration;

use ropeway_engine::{ClientId, Request, StepRecord};
use serde::Serialize;

use super::Sizes;
use super::lab::Lab;
use crate::commands::bench::statistics::{median, percentile};
use crate::failure::Failure;

/// Streams in the batch.
const RUNNING: usize = 64;

/// Requests behind them.
const WAITING: usize = 1000;

/// Accounts that these requests are on.
const ACCOUNTS: u64 = 50;

/// Steps that are looked at.
const STEPS: u64 = 20;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Overhead {
    steps: usize,
    /// Streams in the batch, the least of all steps.
    running: usize,
    /// Requests behind them, the least of all steps.
    waiting: usize,
    plan_us: f64,
    launch_us: f64,
    commit_us: f64,
    execute_ms: f64,
    device_ms: f64,
    /// Planning, launching and committing, of the whole step.
    share: f64,
    share_p99: f64,
}

pub fn measure(lab: &mut Lab, sizes: &Sizes) -> Result<Overhead, Failure> {
    let records = crowded_steps(lab, sizes)?;
    let micros = |time: fn(&StepRecord) -> Duration| {
        median(records.iter().map(|record| time(record).as_secs_f64() * 1e6).collect())
    };
    let shares: Vec<f64> = records.iter().map(share).collect();
    Ok(Overhead {
        steps: records.len(),
        running: records.iter().map(|record| record.running).min().unwrap_or(0),
        waiting: records.iter().map(|record| record.waiting).min().unwrap_or(0),
        plan_us: micros(|record| record.plan),
        launch_us: micros(|record| record.launch),
        commit_us: micros(|record| record.commit),
        execute_ms: micros(|record| record.execute) / 1e3,
        device_ms: micros(|record| record.device) / 1e3,
        share: median(shares.clone()),
        share_p99: percentile(shares, 0.99),
    })
}

/// Steps right after a crowd arrived behind streams at work.
fn crowded_steps(lab: &mut Lab, sizes: &Sizes) -> Result<Vec<StepRecord>, Failure> {
    let mut streams = Vec::with_capacity(RUNNING + WAITING);
    for _ in 0..RUNNING {
        streams.push(lab.submit(sizes.prompt, usize::MAX)?);
    }
    for stream in &mut streams {
        // Two events: the prompt is computed, the first token is there.
        stream.wait();
        stream.wait();
    }
    // Of several accounts, because one alone gets no more than a share of the queue.
    for index in 0..WAITING {
        let client = ClientId::account(index as u64 % ACCOUNTS);
        let prompt = lab.prompt(sizes.prompt);
        streams.push(lab.submit_request(Request { client, ..Request::greedy(prompt, sizes.new) })?);
    }
    // The step under way may have begun before the crowd was there.
    let begin = lab.steps() + 1;
    lab.wait_for_step(begin + STEPS);
    let records = lab.steps_since(begin);
    drop(streams);
    lab.settle();
    Ok(records)
}

fn share(record: &StepRecord) -> f64 {
    let own = record.host();
    own.as_secs_f64() / (own + record.device).as_secs_f64()
}

impl fmt::Display for Overhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "scheduler: {} steps with at least {} running and {} waiting",
            self.steps, self.running, self.waiting
        )?;
        writeln!(
            f,
            "  host: plan {:.0} us, launch {:.0} us, commit {:.0} us; device {:.1} ms of {:.1} ms: {:.2} % (p99 {:.2} %)",
            self.plan_us,
            self.launch_us,
            self.commit_us,
            self.device_ms,
            self.execute_ms,
            100.0 * self.share,
            100.0 * self.share_p99
        )
    }
}
