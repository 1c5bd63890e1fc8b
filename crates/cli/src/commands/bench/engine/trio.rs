//! What an agent sends at once: two short prompts and a long one. Each alone, then together, the long one first: the
//! short ones have to overtake it.

use std::fmt;
use std::thread;

use serde::Serialize;

use super::Sizes;
use super::lab::{Lab, Watched, watch};
use crate::commands::bench::median;
use crate::failure::Failure;

/// Tokens of the short prompts.
const SHORT: [usize; 2] = [85, 113];

/// What was found.
#[derive(Debug, Serialize)]
pub struct Trio {
    new_tokens: usize,
    /// The long one first.
    prompts: Vec<Prompt>,
    /// The longest step while they ran together.
    longest_step_ms: f64,
}

#[derive(Debug, Serialize)]
struct Prompt {
    tokens: usize,
    alone_first_token_ms: f64,
    alone_total_ms: f64,
    together_first_token_ms: f64,
    together_total_ms: f64,
    first_token_ratio: f64,
    total_ratio: f64,
    /// The longest time between two of its tokens, together.
    longest_gap_ms: f64,
}

/// All measurements of one prompt, in milliseconds.
#[derive(Default)]
struct Runs {
    first_token: Vec<f64>,
    total: Vec<f64>,
    gap: Vec<f64>,
}

pub fn measure(lab: &mut Lab, sizes: &Sizes) -> Result<Trio, Failure> {
    let lengths = [sizes.long, SHORT[0], SHORT[1]];
    let mut alone: [Runs; 3] = Default::default();
    let mut together: [Runs; 3] = Default::default();
    let mut steps = Vec::new();
    for _ in 0..sizes.repeat {
        for (tokens, runs) in lengths.into_iter().zip(&mut alone) {
            runs.add(&watch(lab.submit(tokens, sizes.new)?)?);
        }
        let before = lab.steps();
        for (watched, runs) in at_once(lab, lengths, sizes.new)?.iter().zip(&mut together) {
            runs.add(watched);
        }
        let records = lab.steps_since(before);
        steps.push(records.iter().map(|record| record.execute.as_secs_f64() * 1e3).fold(0.0, f64::max));
    }
    let both = alone.into_iter().zip(together);
    let prompts = lengths.into_iter().zip(both).map(|(tokens, (alone, together))| {
        let [alone_first, alone_total] = [median(alone.first_token), median(alone.total)];
        let [first, total] = [median(together.first_token), median(together.total)];
        Prompt {
            tokens,
            alone_first_token_ms: alone_first,
            alone_total_ms: alone_total,
            together_first_token_ms: first,
            together_total_ms: total,
            first_token_ratio: first / alone_first,
            total_ratio: total / alone_total,
            longest_gap_ms: median(together.gap),
        }
    });
    Ok(Trio { new_tokens: sizes.new, prompts: prompts.collect(), longest_step_ms: median(steps) })
}

fn at_once(lab: &mut Lab, lengths: [usize; 3], new: usize) -> Result<Vec<Watched>, Failure> {
    let prompts = lengths.map(|tokens| lab.prompt(tokens));
    let streams: Vec<_> =
        prompts.into_iter().map(|prompt| lab.submit_prompt(prompt, new)).collect::<Result<_, _>>()?;
    thread::scope(|scope| {
        let readers: Vec<_> = streams.into_iter().map(|stream| scope.spawn(|| watch(stream))).collect();
        readers.into_iter().map(|reader| reader.join().expect("a reader does not panic")).collect()
    })
}

impl Runs {
    fn add(&mut self, watched: &Watched) {
        self.first_token.push(watched.usage.first_token.as_secs_f64() * 1e3);
        self.total.push(watched.usage.total.as_secs_f64() * 1e3);
        self.gap.push(watched.longest_gap() * 1e3);
    }
}

impl fmt::Display for Trio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "trio: {} new tokens each; longest step {:.0} ms",
            self.new_tokens, self.longest_step_ms
        )?;
        for prompt in &self.prompts {
            writeln!(
                f,
                "  {:>6} tokens   first {:>6.0} -> {:>6.0} ms ({:.2}x)   total {:>6.0} -> {:>6.0} ms ({:.2}x)   \
                 longest gap {:>5.0} ms",
                prompt.tokens,
                prompt.alone_first_token_ms,
                prompt.together_first_token_ms,
                prompt.first_token_ratio,
                prompt.alone_total_ms,
                prompt.together_total_ms,
                prompt.total_ratio,
                prompt.longest_gap_ms
            )?;
        }
        Ok(())
    }
}
