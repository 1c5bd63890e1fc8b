//! `ropeway batch`: a file of prompts in, a file of answers out.
//!
//! ```text
//! input.rs     lines of bounded length, one at a time        line.rs    what a line is, and who it is
//! body.rs      what a line asks for                          error.rs   why a line got no answer
//! flight.rs    one request from submission to its result     result.rs  a line of the output
//! results.rs   the output file: what is in it already, repairing, appending
//! driver.rs    keeps a bounded number of requests in the engine until the input is used up
//! ```
//! The input is never in memory as a whole. A line that can't be answered becomes one line with its error. What is in
//! the output already is not computed again, so that a run that was stopped goes on where it was.

mod body;
mod driver;
mod error;
mod flight;
mod input;
mod line;
mod result;
mod results;

use std::path::{Path, PathBuf};

use clap::Args;
use ropeway_hub::catalogue::DEFAULT_CHAT_MODEL;

use crate::engine_args::{EngineArgs, For};
use crate::failure::Failure;
use crate::interrupt;
use crate::model_args::ModelArgs;
use crate::output::tell;
use crate::sampling_args::SamplingArgs;
use body::Defaults;
use driver::{Driver, Tally};
use input::Input;
use results::Results;

const EXAMPLES: &str = "\
Examples:
  ropeway batch questions.jsonl -o answers.jsonl
  ropeway batch questions.jsonl -o answers.jsonl --temperature 0 --max-tokens 200

A line of the input is one of
  {\"prompt\": \"Once upon a time\", \"max_tokens\": 50}
  {\"id\": \"q7\", \"messages\": [{\"role\": \"user\", \"content\": \"Why?\"}], \"stop\": \"\\n\"}
  a line of an OpenAI batch file: custom_id, method, url and body
and may set max_tokens, min_tokens, temperature, top_p, top_k, min_p, seed, stop, n
and penalties for itself. A line of the output has the form of OpenAI's batch
results. Run the same command again after an interruption: it goes on.";

/// Answer a file of prompts
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Batch {
    /// Prompts, one JSON object a line
    input: PathBuf,
    /// Answers, one JSON object a line; ids that are in it already are skipped
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// A name from `ropeway list`, a Hugging Face name, or a path
    #[arg(short, long, default_value = DEFAULT_CHAT_MODEL)]
    model: String,
    /// Write answers in the order of the input, not as they finish
    #[arg(long)]
    ordered: bool,
    /// Longest answer where a line does not say (default: until the model ends
    /// it or the context is full)
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    options: ModelArgs,
}

impl Batch {
    pub fn run(self) -> Result<(), Failure> {
        refuse_same_file(&self.input, &self.output)?;
        let input = Input::open(&self.input)?;
        let results = Results::open(&self.output, self.ordered)?;
        let started = self.engine.start(&self.options, &self.model, For::Many)?;
        tell(&started.summary());
        interrupt::listen()?;
        let defaults = Defaults {
            params: self.sampling.params(),
            max_tokens: self.max_tokens.map(|tokens| tokens as usize),
        };
        let tally = Driver::new(&started, results, defaults)?.run(input)?;
        self.conclude(&tally)
    }

    /// Says how it went; anything but every line answered is a failure.
    fn conclude(&self, tally: &Tally) -> Result<(), Failure> {
        tell(&tally.to_string());
        if tally.interrupted {
            return Err(Failure::new(
                "interrupted",
                "run the same command again: it goes on where it stopped",
            ));
        }
        if tally.failed > 0 {
            let hint = format!("their errors are in {}, as \"error\"", self.output.display());
            return Err(Failure::new(format!("{} lines failed", tally.failed), hint));
        }
        Ok(())
    }
}

fn refuse_same_file(input: &Path, output: &Path) -> Result<(), Failure> {
    let same = match (input.canonicalize(), output.canonicalize()) {
        (Ok(input), Ok(output)) => input == output,
        _ => false,
    };
    if same {
        return Err(Failure::new("input and output are the same file", "give another file after --output"));
    }
    Ok(())
}
