//! Speculative decoding: the same requests with and without drafts, in turn.
//!
//! Every round runs a workload once without and once with drafts, on one engine, and compares the texts, which have to
//! be equal. What is reported beside the speed-up is what it consists of: the tokens that a step gives a stream, divided by
//! how much longer steps take to compute with drafts. What is missing to that is what drafting itself takes.

mod workloads;

use std::fmt;
use std::time::Instant;

use ropeway_engine::{DraftTotals, Event, EventStream, FinishReason, Request, StepRecord};
use ropeway_text::{ChatTemplate, Tokenizer};
use serde::Serialize;

use super::Sizes;
use super::lab::Lab;
use crate::commands::bench::statistics::median;
use crate::failure::Failure;
use crate::output::tell;
use workloads::{Workload, workloads};

/// What was found.
#[derive(Debug, Serialize)]
pub struct Speculation {
    rows: Vec<Compared>,
}

/// One workload at one number of streams.
#[derive(Debug, Serialize)]
struct Compared {
    workload: &'static str,
    streams: usize,
    /// Tokens per second without drafts.
    off_tok_s: f64,
    /// Tokens per second with drafts.
    on_tok_s: f64,
    /// Median of the rounds' ratios.
    speedup: f64,
    /// Speed-up that the tokens per step and the steps' time to compute allow.
    allowed: f64,
    /// Share of drafted tokens that were right.
    acceptance: f64,
    /// Share of drafts whose first token was right.
    first_right: f64,
    /// Drafted tokens per draft.
    mean_depth: f64,
    /// Tokens that a step gives a stream.
    tokens_per_step: f64,
    /// Drafted tokens per generated one.
    drafted_share: f64,
}

/// One run of a workload.
struct Run {
    seconds: f64,
    texts: Vec<Vec<u32>>,
    totals: DraftTotals,
    /// Drafts whose first token was right.
    first_right: u64,
    steps: Vec<StepRecord>,
}

pub fn measure(
    lab: &mut Lab,
    sizes: &Sizes,
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
) -> Result<Speculation, Failure> {
    let mut rows = Vec::new();
    let most = sizes.drafted.iter().copied().max().unwrap_or(1);
    let mut workloads = workloads(tokenizer, template, most, lab.context())?;
    workloads.retain(|workload| is_wanted(workload.name, &sizes.workload));
    for workload in workloads {
        for streams in &sizes.drafted {
            let row = compare(lab, sizes, &workload, *streams)?;
            tell(&format!("{}, {} streams: {:.2}x", row.workload, row.streams, row.speedup));
            rows.push(row);
        }
    }
    Ok(Speculation { rows })
}

fn is_wanted(name: &str, wanted: &[String]) -> bool {
    wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()))
}

fn compare(lab: &mut Lab, sizes: &Sizes, workload: &Workload, streams: usize) -> Result<Compared, Failure> {
    // Fills the prefix cache, so that what is measured is generation.
    run(lab, workload, streams, Some(0))?;
    let (mut off, mut on) = (Vec::new(), Vec::new());
    for _ in 0..sizes.repeat {
        off.push(run(lab, workload, streams, Some(0))?);
        on.push(run(lab, workload, streams, None)?);
    }
    if off.iter().zip(&on).any(|(off, on)| off.texts != on.texts) {
        return Err(Failure::new("texts with and without drafts differ", "report this as a bug"));
    }
    Ok(compared(workload.name, streams, &off, &on))
}

fn compared(workload: &'static str, streams: usize, off: &[Run], on: &[Run]) -> Compared {
    let speed = |runs: &[Run]| median(runs.iter().map(Run::tokens_per_second).collect());
    let mean = |runs: &[Run], of: fn(&Run) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    let per_step = |runs: &[Run]| mean(runs, Run::tokens) / mean(runs, Run::stream_steps);
    let computing = |runs: &[Run]| mean(runs, Run::computing) / mean(runs, Run::stream_steps);
    let total = |of: fn(&DraftTotals) -> usize| on.iter().map(|run| of(&run.totals) as f64).sum::<f64>();
    let (drafts, drafted, accepted) =
        (total(|totals| totals.drafts), total(|totals| totals.drafted), total(|totals| totals.accepted));
    Compared {
        workload,
        streams,
        off_tok_s: speed(off),
        on_tok_s: speed(on),
        speedup: median(off.iter().zip(on).map(|(off, on)| off.seconds / on.seconds).collect()),
        allowed: per_step(on) / per_step(off) * computing(off) / computing(on),
        acceptance: accepted / drafted.max(1.0),
        first_right: on.iter().map(|run| run.first_right as f64).sum::<f64>() / drafts.max(1.0),
        mean_depth: drafted / drafts.max(1.0),
        tokens_per_step: per_step(on),
        drafted_share: drafted / (mean(on, Run::tokens) * on.len() as f64),
    }
}

impl Run {
    fn tokens(&self) -> f64 {
        self.texts.iter().map(Vec::len).sum::<usize>() as f64
    }

    fn tokens_per_second(&self) -> f64 {
        self.tokens() / self.seconds
    }

    /// Steps that streams had a part in, counted once per stream.
    fn stream_steps(&self) -> f64 {
        self.steps.iter().map(|step| step.running).sum::<usize>() as f64
    }

    /// Seconds of computing.
    fn computing(&self) -> f64 {
        self.steps.iter().map(|step| step.execute.as_secs_f64() * step.running as f64).sum()
    }
}

fn run(lab: &Lab, workload: &Workload, streams: usize, depth: Option<usize>) -> Result<Run, Failure> {
    let requests: Vec<Request> =
        (0..streams).map(|number| Request { speculation: depth, ..workload.request(number) }).collect();
    lab.settle();
    let (before, first_right, began) = (lab.steps(), lab.first_drafts_right(), Instant::now());
    let events: Vec<_> =
        requests.into_iter().map(|request| lab.submit_request(request)).collect::<Result<_, _>>()?;
    let (mut texts, mut totals) = (Vec::new(), DraftTotals::default());
    for stream in events {
        let (text, drafting) = read(stream)?;
        texts.push(text);
        totals.drafts += drafting.drafts;
        totals.drafted += drafting.drafted;
        totals.accepted += drafting.accepted;
    }
    let seconds = began.elapsed().as_secs_f64();
    lab.settle();
    let first_right = lab.first_drafts_right() - first_right;
    Ok(Run { seconds, texts, totals, first_right, steps: lab.steps_since(before) })
}

fn read(mut stream: EventStream) -> Result<(Vec<u32>, DraftTotals), Failure> {
    let mut text = Vec::new();
    while let Some(event) = stream.wait() {
        match event {
            Event::Placed { .. } | Event::Prefilled { .. } | Event::Scored(_) => {}
            Event::Token { sampled, .. } => text.push(sampled.token),
            Event::Finished { reason: FinishReason::Failed(error), .. } => {
                return Err(Failure::new(error, "check the model with `ropeway run`"));
            }
            Event::Finished { usage, .. } => return Ok((text, usage.drafting)),
        }
    }
    Err(Failure::new("a stream ended without a word", "run it again"))
}

impl fmt::Display for Speculation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "speculation: texts with and without drafts are equal\n  \
             workload        streams       off        on  speed-up  allowed  first right  accepted  depth  tokens a step"
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "  {:<15} {:>7} {:>9.1} {:>9.1} {:>8.2}x {:>7.2}x {:>10.0} % {:>7.0} % {:>6.1} {:>14.2}",
                row.workload,
                row.streams,
                row.off_tok_s,
                row.on_tok_s,
                row.speedup,
                row.allowed,
                100.0 * row.first_right,
                100.0 * row.acceptance,
                row.mean_depth,
                row.tokens_per_step
            )?;
        }
        Ok(())
    }
}
