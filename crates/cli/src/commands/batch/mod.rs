//! `ropeway batch`: a file of prompts in, a file of answers out.
//!
//! ```text
//! input.rs     lines of bounded length, one at a time        line.rs    what a line is, and who it is
//! models.rs    what answers lines                            error.rs   why a line got no answer
//! flight.rs    one line from submission to its result        result.rs  a line of the output
//! results.rs   the output file: what is in it already, repairing, appending
//! driver.rs    keeps a bounded number of prompts in the models until the input is used up
//! ```
//! Bodies are read and answered by the `openai` crate, as the server does it.
//! The input is never in memory as a whole. A line that can't be answered becomes one line with its error. What is in
//! the output already is not computed again, so that a run that was stopped goes on where it was.

mod driver;
mod error;
mod flight;
mod input;
mod line;
mod models;
mod result;
mod results;

use std::path::{Path, PathBuf};

use clap::Args;
use ropeway_hub::catalogue::{DEFAULT_CHAT_MODEL, DEFAULT_EMBEDDING_MODEL};
use ropeway_openai::Defaults;

use crate::engine_args::{EngineArgs, For};
use crate::failure::Failure;
use crate::interrupt;
use crate::model_args::ModelArgs;
use crate::output::tell;
use crate::sampling_args::SamplingArgs;
use driver::{Driver, Tally};
use input::Input;
use models::{EmbeddingModel, Models};
use results::Results;

const EXAMPLES: &str = "\
Examples:
  ropeway batch questions.jsonl -o answers.jsonl
  ropeway batch questions.jsonl -o answers.jsonl --temperature 0 --max-tokens 200

A line of the input is one of
  {\"prompt\": \"Once upon a time\", \"max_tokens\": 50}
  {\"id\": \"q7\", \"messages\": [{\"role\": \"user\", \"content\": \"Why?\"}], \"stop\": \"\\n\"}
  a line of an OpenAI batch file: custom_id, method, url and body, where url is
  /v1/chat/completions, /v1/completions or /v1/embeddings
and may set for itself what a request to `ropeway serve` may: max_tokens, stop, n,
seed and other sampling parameters, tools and tool_choice, response_format and
structured_outputs, logprobs and top_logprobs. Its own penalties count as in
OpenAI's API, without the window of --repeat-penalty. A line of the output has the
form of OpenAI's batch results. Run the same command again after an interruption:
it goes on.";

/// Answer a file of prompts
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Batch {
    /// Prompts, one JSON object a line
    input: PathBuf,
    /// Answers, one JSON object a line; ids that are in it already are skipped
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// A name from `ropeway search`, a Hugging Face name, or a path
    #[arg(short, long, default_value = DEFAULT_CHAT_MODEL)]
    model: String,
    /// The model for lines with the url /v1/embeddings, loaded when the first
    /// one comes
    #[arg(long, value_name = "MODEL", default_value = DEFAULT_EMBEDDING_MODEL)]
    embed_model: String,
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
        let embedding = EmbeddingModel::new(self.embed_model.clone(), &self.options);
        let models = Models::new(started, defaults, embedding)?;
        let tally = Driver::new(models, results).run(input)?;
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
