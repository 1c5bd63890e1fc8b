//! `ropeway run`: answers one prompt, or talks.
//!
//! | module | what it is |
//! |---|---|
//! | `assistant` | the model with its tokenizer and template: a conversation in, a streamed answer out |
//! | `history` | what was said, and what of it still fits |
//! | `chat` | the interactive loop, on what `input` reads |
//! | `report` | what `--verbose` tells |
//!
//! The answer goes to standard output as it comes; everything else to standard error. It relies on the
//! engine for the tokens, whose prefix cache keeps what earlier turns computed, and must never keep a word of what was
//! said after it ends.

mod assistant;
mod chat;
mod history;
mod input;
mod report;

use std::io::{self, IsTerminal};
use std::path::Path;

use clap::Args;
use ropeway_generation::Sampling;
use ropeway_hub::catalogue::DEFAULT_CHAT_MODEL;

use crate::engine_args::{EngineArgs, For};
use crate::failure::Failure;
use crate::model_args::ModelArgs;
use crate::output::Output;
use crate::reading;
use crate::sampling_args::SamplingArgs;
use assistant::Assistant;
use history::History;

const EXAMPLES: &str = "\
Examples:
  ropeway run                                    talk to the default model
  ropeway run smollm2 \"Why is the sky blue?\"     one answer
  ropeway run smollm2 --system \"Answer in French.\"
  ropeway run smollm2 < letter.txt               the prompt from a file
  ropeway run smollm2 --raw \"Once upon a time\"   continue a text
  ropeway run ./model.gguf --temperature 0 --verbose \"Hello\"

While talking: /help lists the commands, Ctrl-C stops an answer, Ctrl-D quits.
The model is fetched first if it is not on this machine yet.";

/// Answer a prompt, or talk to a model
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Run {
    /// A name from `ropeway search`, a Hugging Face name, or a path
    #[arg(default_value = DEFAULT_CHAT_MODEL)]
    model: String,
    /// What to answer; several words are joined by spaces. Without it: a
    /// conversation on a terminal, else standard input is the prompt
    prompt: Vec<String>,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Continue the text as it is, without the model's chat template
    #[arg(long, conflicts_with = "system")]
    raw: bool,
    /// Longest answer (default: until the model ends it or the context is full)
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
    /// Tell speed and memory after each answer
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    options: ModelArgs,
}

/// Where the prompts come from.
enum Source {
    /// This is the only one.
    Given(String),
    /// A person types them.
    Terminal,
}

impl Run {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        self.check_model_name()?;
        let source = self.source()?;
        let started = self.engine.start(&self.options, &self.model, For::OneConversation)?;
        let settings = assistant::Settings {
            sampling: Sampling::new(self.sampling.params())?,
            max_tokens: self.max_tokens.map(|tokens| tokens as usize),
            verbose: self.verbose,
        };
        let mut assistant = Assistant::new(started, settings)?;
        let mut history = History::new(self.system);
        match source {
            Source::Terminal => chat::talk(&mut assistant, &mut history, output),
            Source::Given(text) if self.raw => assistant.proceed(&text, output),
            Source::Given(text) => assistant.reply(&mut history, text, output),
        }
    }

    /// Catches `ropeway run "Why is the sky blue?"`, whose question stands where the model's name belongs.
    fn check_model_name(&self) -> Result<(), Failure> {
        let sentence = self.model.contains(char::is_whitespace) && !Path::new(&self.model).exists();
        if !sentence {
            return Ok(());
        }
        let hint = format!("the model comes first: `ropeway run {DEFAULT_CHAT_MODEL} {:?}`", self.model);
        Err(Failure::new(format!("`{}` is not the name of a model", self.model), hint))
    }

    fn source(&self) -> Result<Source, Failure> {
        let text = match (self.prompt.is_empty(), io::stdin().is_terminal()) {
            (false, _) => self.prompt.join(" "),
            (true, false) => reading::text(io::stdin(), "standard input")?,
            (true, true) if self.raw => {
                return Err(Failure::new(
                    "--raw has no text to continue",
                    "give it as PROMPT, or pipe it in",
                ));
            }
            (true, true) => return Ok(Source::Terminal),
        };
        if text.trim().is_empty() {
            return Err(Failure::new(
                "the prompt is empty",
                "give some text, as PROMPT or on standard input",
            ));
        }
        Ok(Source::Given(text))
    }
}
