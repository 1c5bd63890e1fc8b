//! `ropeway pull`: fetch a model, or what a GPU needs.

use std::io::Write;

use clap::Args;
use indicatif::DecimalBytes;
use ropeway_cuda::driver::driver_major;
use ropeway_hub::catalogue::DEFAULT_CHAT_MODEL;
use ropeway_hub::{Check, CudaMajor, Outcome};

use crate::failure::Failure;
use crate::output::{Output, tell};
use crate::{device_args, interrupt, pulling};

/// What stands for NVIDIA's libraries in place of a model.
const CUDA: &str = "cuda";

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
  ropeway pull cuda                        NVIDIA's libraries, for a GPU

Large files come over 8 connections (ROPEWAY_PULL_CONNECTIONS). A pull that was
cut short resumes where it was, and one that gets nothing for 30 seconds
(ROPEWAY_PULL_TIMEOUT) is given up. Files are compared with their sha256, also
those that are here already: what is damaged is fetched again. What Ollama or
Hugging Face tools have on this machine is used where it is. Private and gated
repositories need HF_TOKEN; with HF_HUB_OFFLINE=1 nothing is fetched.";

/// Fetch a model, or NVIDIA's libraries for a GPU
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Pull {
    /// A name from `ropeway search`, org/repo[@revision][:file] on Hugging Face,
    /// ollama:NAME[:TAG], or cuda
    #[arg(default_value = DEFAULT_CHAT_MODEL)]
    model: String,
}

impl Pull {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        interrupt::give_up_on_signal()?;
        if self.model == CUDA {
            return pull_cuda(output);
        }
        let pulled = pulling::pull(&pulling::open_hub()?, &self.model, Check::Checksums)?;
        let files = pulled.files;
        let what = in_words(pulled.outcome);
        let (name, size, path) = (&files.name, DecimalBytes(files.bytes()), files.checkpoint().display());
        writeln!(output, "{what} {name} ({size})\n{path}")?;
        Ok(())
    }
}

/// Fetches NVRTC and cuBLASLt in the version that this machine's driver knows; the newest, where there is no driver.
fn pull_cuda(output: &mut Output) -> Result<(), Failure> {
    let major = if let Ok(known) = driver_major(&device_args::search()) {
        CudaMajor::known_to(known).ok_or_else(|| too_old(known))?
    } else {
        tell("no NVIDIA driver is here: taking what the newest ones need");
        CudaMajor::Thirteen
    };
    let (folder, outcome) = pulling::pull_cuda_libraries(&pulling::open_hub()?, major)?;
    let (what, number) = (in_words(outcome), major.number());
    writeln!(output, "{what} NVRTC and cuBLASLt for CUDA {number}\n{}", folder.display())?;
    Ok(())
}

fn too_old(known: i32) -> Failure {
    let problem = format!("the NVIDIA driver of this machine knows CUDA {known}, and 12 is needed");
    Failure::new(problem, "update the driver to version 580 or newer")
}

fn in_words(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Fetched => "pulled",
        Outcome::AlreadyThere => "already there:",
    }
}
