//! What an agent sends at once: two short prompts and a long one. Each alone, then together, the long one first: the
//! short ones have to overtake it.

use std::thread;

use super::Sizes;
use super::lab::{Lab, Watched, watch};
use crate::commands::bench::statistics::median;
use crate::commands::bench::trio::{Prompt, Runs, Timed, Trio};
use crate::failure::Failure;

/// Tokens of the short prompts.
const SHORT: [usize; 2] = [85, 113];

pub fn measure(lab: &mut Lab, sizes: &Sizes) -> Result<Trio, Failure> {
    let lengths = [sizes.long, SHORT[0], SHORT[1]];
    let mut alone: [Runs; 3] = Default::default();
    let mut together: [Runs; 3] = Default::default();
    let mut steps = Vec::new();
    for _ in 0..sizes.repeat {
        for (tokens, runs) in lengths.into_iter().zip(&mut alone) {
            runs.add(timed(&watch(lab.submit(tokens, sizes.new)?)?));
        }
        let before = lab.steps();
        for (watched, runs) in at_once(lab, lengths, sizes.new)?.iter().zip(&mut together) {
            runs.add(timed(watched));
        }
        let records = lab.steps_since(before);
        steps.push(records.iter().map(|record| record.execute.as_secs_f64() * 1e3).fold(0.0, f64::max));
    }
    let both = alone.into_iter().zip(together);
    let prompts = lengths.into_iter().zip(both);
    let prompts = prompts.map(|(tokens, (alone, together))| Prompt::of(tokens, alone, together));
    Ok(Trio { new_tokens: sizes.new, prompts: prompts.collect(), longest_step_ms: Some(median(steps)) })
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

fn timed(watched: &Watched) -> Timed {
    Timed {
        first_token: watched.usage.first_token.as_secs_f64(),
        total: watched.usage.total.as_secs_f64(),
        longest_gap: watched.longest_gap(),
    }
}
