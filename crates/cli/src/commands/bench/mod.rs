//! `ropeway bench`: how fast this machine is, and how much of it is used.

mod compare;
mod embed;
mod engine;
mod kernels;
mod model;
mod serve;
mod statistics;
mod trio;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  ropeway bench model                 prefill and decode of the default model
  ropeway bench model --json > a.json
  ropeway bench engine                many requests at once
  ropeway bench serve --url http://127.0.0.1:8000   any server, over HTTP
  ropeway bench compare a.json b.json               two servers side by side
  ropeway bench embed                 texts a second through the embedder
  ropeway bench kernels               every kernel against the machine's limits
  ropeway bench model --device cpu    on the CPU, where there is a GPU
  ropeway bench model --isa avx2      as a CPU without AVX-512 would run";

/// Measure speed, next to what this machine can do at most
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Model(model::Model),
    Embed(embed::Embed),
    Engine(Box<engine::Engine>),
    Kernels(kernels::Kernels),
    Serve(Box<serve::Serve>),
    Compare(compare::Compare),
}

impl Bench {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        match self.what {
            What::Model(command) => command.run(output),
            What::Embed(command) => command.run(output),
            What::Engine(command) => command.run(output),
            What::Kernels(command) => command.run(output),
            What::Serve(command) => command.run(output),
            What::Compare(command) => command.run(output),
        }
    }
}
