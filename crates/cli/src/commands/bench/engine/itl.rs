//! A stream that is being read while a long prompt is computed beside it: how long its reader waits between tokens,
//! and what that costs the prompt.

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
}

/// One stream beside one prompt.
struct Run {
    undisturbed: Vec<f64>,
    disturbed: Vec<f64>,
    prefill_tok_s: f64,
}

pub fn measure(lab: &mut Lab, sizes: &Sizes, target_ms: u32) -> Result<InterToken, Failure> {
    let (mut undisturbed, mut disturbed) = (Vec::new(), Vec::new());
    let (mut beside, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..sizes.repeat {
        let usage = finish(lab.submit(sizes.long, 1)?)?;
        alone.push(sizes.long as f64 / usage.first_token.as_secs_f64());
        let run = side_by_side(lab, sizes)?;
        undisturbed.extend(run.undisturbed);
        disturbed.extend(run.disturbed);
        beside.push(run.prefill_tok_s);
    }
    let (prefill_tok_s, unhindered_tok_s) = (median(beside), median(alone));
    let p99_ms = percentile(disturbed.clone(), 0.99) * 1e3;
    Ok(InterToken {
        target_ms,
        prompt_tokens: sizes.long,
        p50_ms: percentile(disturbed.clone(), 0.5) * 1e3,
        p99_ms,
        longest_ms: percentile(disturbed, 1.0) * 1e3,
        p99_of_target: p99_ms / f64::from(target_ms),
        undisturbed_p50_ms: percentile(undisturbed, 0.5) * 1e3,
        prefill_tok_s,
        unhindered_tok_s,
        prefill_share: prefill_tok_s / unhindered_tok_s,
    })
}

fn side_by_side(lab: &mut Lab, sizes: &Sizes) -> Result<Run, Failure> {
    // As long as the context allows: it has to outlast the prompt.
    let mut stream = lab.submit(sizes.prompt, usize::MAX)?;
    let lead: Vec<Instant> = std::iter::from_fn(|| next_token(&mut stream)).take(LEAD).collect();
    let prompt = lab.prompt(sizes.long);
    let done = AtomicBool::new(false);
    let (disturbed, usage) = thread::scope(|scope| {
        let reader = scope.spawn(|| read_until(stream, &done));
        let usage = lab.submit_prompt(prompt, 1).and_then(finish);
        done.store(true, Ordering::Relaxed);
        (reader.join().expect("a reader does not panic"), usage)
    });
    lab.settle();
    let prefill_tok_s = sizes.long as f64 / usage?.first_token.as_secs_f64();
    Ok(Run { undisturbed: gaps(&lead), disturbed: gaps(&disturbed), prefill_tok_s })
}

/// When the next token arrived; `None` at the end.
fn next_token(stream: &mut EventStream) -> Option<Instant> {
    loop {
        match stream.wait()? {
            Event::Prefilled { .. } | Event::Scored(_) => {}
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
            "itl: a stream beside a prompt of {} tokens, target {} ms",
            self.prompt_tokens, self.target_ms
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
        )
    }
}
