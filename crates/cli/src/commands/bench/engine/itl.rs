//! Streams that are being read while a long prompt is computed beside them: how long their readers wait between tokens,
//! what that costs the prompt, and how well the engine knows beforehand how long a step takes.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use ropeway_engine::{Event, EventStream};
use serde::Serialize;

use super::Sizes;
use super::lab::{Lab, finish, gaps};
use crate::commands::bench::statistics::{median, percentile};
use crate::failure::Failure;

/// Tokens of the stream before the prompt arrives: it is in full swing by then.
const LEAD: usize = 16;

/// What was found.
#[derive(Debug, Serialize)]
pub struct InterToken {
    target_ms: u32,
    streams: usize,
    prompt_tokens: usize,
    p50_ms: f64,
    p99_ms: f64,
    longest_ms: f64,
    /// The 99th percentile against the target.
    p99_of_target: f64,
    /// Between two tokens when nothing else runs.
    undisturbed_p50_ms: f64,
    prefill_tok_s: f64,
    unhindered_tok_s: f64,
    /// Of the unhindered speed.
    prefill_share: f64,
    /// What steps with a part of the prompt took, as a multiple of what was predicted.
    step_of_predicted_p50: f64,
    step_of_predicted_p99: f64,
    /// The 99th percentile of what these steps took.
    step_p99_ms: f64,
}

/// Streams beside one prompt.
struct Run {
    undisturbed: Vec<f64>,
    disturbed: Vec<f64>,
    prefill_tok_s: f64,
    /// Steps with a part of the prompt: seconds measured and predicted.
    steps: Vec<(f64, f64)>,
}

pub fn measure(lab: &mut Lab, sizes: &Sizes, target_ms: u32) -> Result<InterToken, Failure> {
    let (mut undisturbed, mut disturbed) = (Vec::new(), Vec::new());
    let (mut beside, mut alone) = (Vec::new(), Vec::new());
    let mut steps = Vec::new();
    for _ in 0..sizes.repeat {
        let usage = finish(lab.submit(sizes.long, 1)?)?;
        alone.push(sizes.long as f64 / usage.first_token.as_secs_f64());
        let run = side_by_side(lab, sizes)?;
        undisturbed.extend(run.undisturbed);
        disturbed.extend(run.disturbed);
        beside.push(run.prefill_tok_s);
        steps.extend(run.steps);
    }
    let ratios: Vec<f64> = steps.iter().map(|(measured, predicted)| measured / predicted).collect();
    let measured = steps.iter().map(|(measured, _)| *measured).collect();
    let (prefill_tok_s, unhindered_tok_s) = (median(beside), median(alone));
    let p99_ms = percentile(disturbed.clone(), 0.99) * 1e3;
    Ok(InterToken {
        target_ms,
        streams: sizes.streams,
        prompt_tokens: sizes.long,
        p50_ms: percentile(disturbed.clone(), 0.5) * 1e3,
        p99_ms,
        longest_ms: percentile(disturbed, 1.0) * 1e3,
        p99_of_target: p99_ms / f64::from(target_ms),
        undisturbed_p50_ms: percentile(undisturbed, 0.5) * 1e3,
        prefill_tok_s,
        unhindered_tok_s,
        prefill_share: prefill_tok_s / unhindered_tok_s,
        step_of_predicted_p50: percentile(ratios.clone(), 0.5),
        step_of_predicted_p99: percentile(ratios, 0.99),
        step_p99_ms: percentile(measured, 0.99) * 1e3,
    })
}

fn side_by_side(lab: &mut Lab, sizes: &Sizes) -> Result<Run, Failure> {
    // As long as the context allows: they have to outlast the prompt.
    let streams: Result<Vec<_>, _> =
        (0..sizes.streams.max(1)).map(|_| lab.submit(sizes.prompt, usize::MAX)).collect();
    let mut streams = streams?;
    let leads: Vec<Vec<Instant>> = streams.iter_mut().map(lead).collect();
    let (prompt, before) = (lab.prompt(sizes.long), lab.steps());
    let done = AtomicBool::new(false);
    let (disturbed, usage) = thread::scope(|scope| {
        let reader = |stream| scope.spawn(|| read_until(stream, &done));
        let readers: Vec<_> = streams.into_iter().map(reader).collect();
        let usage = lab.submit_prompt(prompt, 1).and_then(finish);
        done.store(true, Ordering::Relaxed);
        let join = |reader: thread::ScopedJoinHandle<'_, _>| reader.join().expect("a reader does not panic");
        (readers.into_iter().map(join).collect::<Vec<Vec<Instant>>>(), usage)
    });
    lab.settle();
    let prefill_tok_s = sizes.long as f64 / usage?.first_token.as_secs_f64();
    let undisturbed = leads.last().map(|lead| gaps(lead)).unwrap_or_default();
    let disturbed = disturbed.iter().flat_map(|arrivals| gaps(arrivals)).collect();
    Ok(Run { undisturbed, disturbed, prefill_tok_s, steps: mixed_steps(lab, before) })
}

/// The first tokens of a stream.
fn lead(stream: &mut EventStream) -> Vec<Instant> {
    std::iter::from_fn(|| next_token(stream)).take(LEAD).collect()
}

/// Steps since `before` with streams and a part of a prompt in them, measured and predicted.
fn mixed_steps(lab: &Lab, before: u64) -> Vec<(f64, f64)> {
    let mixed = lab.steps_since(before).into_iter();
    let mixed = mixed.filter(|step| step.prefill_tokens > 0 && step.decode_tokens > 0);
    mixed.map(|step| (step.execute.as_secs_f64(), step.predicted.as_secs_f64())).collect()
}

/// When the next token arrived; `None` at the end.
fn next_token(stream: &mut EventStream) -> Option<Instant> {
    loop {
        match stream.wait()? {
            Event::Placed { .. } | Event::Prefilled { .. } | Event::Scored(_) => {}
            Event::Token { .. } => return Some(Instant::now()),
            Event::Finished { .. } => return None,
        }
    }
}

fn read_until(mut stream: EventStream, done: &AtomicBool) -> Vec<Instant> {
    let mut arrivals = vec![Instant::now()];
    // One token at least: a prompt so short that it is done by now was computed beside it as well.
    while let Some(arrival) = next_token(&mut stream) {
        arrivals.push(arrival);
        if done.load(Ordering::Relaxed) {
            break;
        }
    }
    arrivals
}

impl fmt::Display for InterToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "itl: streams ({}) beside a prompt of {} tokens, target {} ms",
            self.streams, self.prompt_tokens, self.target_ms
        )?;
        writeln!(
            f,
            "  between tokens   p50 {:.1} ms, p99 {:.1} ms ({:.2}x the target), longest {:.1} ms; undisturbed {:.1} ms",
            self.p50_ms, self.p99_ms, self.p99_of_target, self.longest_ms, self.undisturbed_p50_ms
        )?;
        writeln!(
            f,
            "  prefill          {:.0} tok/s, {:.0} % of {:.0} unhindered",
            self.prefill_tok_s,
            100.0 * self.prefill_share,
            self.unhindered_tok_s
        )?;
        writeln!(
            f,
            "  steps            p99 {:.1} ms; measured / predicted p50 {:.2}, p99 {:.2}",
            self.step_p99_ms, self.step_of_predicted_p50, self.step_of_predicted_p99
        )
    }
}
