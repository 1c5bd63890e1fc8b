//! `ropeway pull`: fetch a model.

use std::io::Write;

use clap::Args;
use indicatif::DecimalBytes;
use ropeway_hub::catalogue::DEFAULT_CHAT_MODEL;
use ropeway_hub::{Check, Outcome};

use crate::failure::Failure;
use crate::output::Output;
use crate::{interrupt, pulling};

const EXAMPLES: &str = "\
Examples:
  ropeway pull                             the default chat model
  ropeway pull llama3.2:1b                 by name; `ropeway search` lists them
  ropeway pull llama3.2:1b-q8_0            in another quantization
  ropeway pull Qwen/Qwen3-0.6B             a Hugging Face repository
  ropeway pull org/repo:model.Q4_K_M.gguf  one file of it
  ropeway pull org/repo:Q4_K_M             the same, by its quantization
  ropeway pull org/repo@revision           at a branch, tag or commit
  ropeway pull ollama:llama3.2:1b          from the Ollama registry

Large files come over 8 connections (ROPEWAY_PULL_CONNECTIONS). A pull that was
cut short resumes where it was, and one that gets nothing for 30 seconds
(ROPEWAY_PULL_TIMEOUT) is given up. Files are compared with their sha256, also
those that are here already: what is damaged is fetched again. What Ollama or
Hugging Face tools have on this machine is used where it is. Private and gated
repositories need HF_TOKEN; with HF_HUB_OFFLINE=1 nothing is fetched.";

/// Fetch a model, or make sure it is there
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Pull {
    /// A name from `ropeway search`, org/repo[@revision][:file] on Hugging Face,
    /// or ollama:NAME[:TAG]
    #[arg(default_value = DEFAULT_CHAT_MODEL)]
    model: String,
}

impl Pull {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        interrupt::give_up_on_signal()?;
        let pulled = pulling::pull(&pulling::open_hub()?, &self.model, Check::Checksums)?;
        let files = pulled.files;
        let what = match pulled.outcome {
            Outcome::Fetched => "pulled",
            Outcome::AlreadyThere => "already there:",
        };
        let (name, size, path) = (&files.name, DecimalBytes(files.bytes()), files.checkpoint().display());
        writeln!(output, "{what} {name} ({size})\n{path}")?;
        Ok(())
    }
}
