//! One file per command: its arguments, and what it does with them.

mod batch;
mod bench;
mod cache;
mod config;
mod embed;
mod list;
mod pull;
mod rm;
mod run;
mod search;
mod serve;
mod show;
mod simulate;
mod tokenize;
mod upstreams;
mod verify;

use clap::Subcommand;

use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Resolved;

/// What `ropeway` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    Pull(pull::Pull),
    Search(search::Search),
    List(list::List),
    Rm(rm::Rm),
    Verify(verify::Verify),
    Cache(cache::Cache),
    Run(run::Run),
    Serve(Box<serve::Serve>),
    Upstreams(upstreams::Upstreams),
    Config(Box<config::Config>),
    Batch(batch::Batch),
    Embed(embed::Embed),
    Show(show::Show),
    Tokenize(tokenize::Tokenize),
    Bench(bench::Bench),
    Simulate(Box<simulate::Simulate>),
}

impl Command {
    /// Does it.
    pub fn run(self, output: &mut Output, resolved: &Resolved) -> Result<(), Failure> {
        match self {
            Command::Pull(command) => command.run(output),
            Command::Search(command) => command.run(output),
            Command::List(command) => command.run(output),
            Command::Rm(command) => command.run(output),
            Command::Verify(command) => command.run(output),
            Command::Cache(command) => command.run(output),
            Command::Run(command) => command.run(output),
            Command::Serve(command) => command.run(resolved),
            Command::Upstreams(command) => command.run(output),
            Command::Config(command) => command.run(output, resolved),
            Command::Batch(command) => command.run(),
            Command::Embed(command) => command.run(output),
            Command::Show(command) => command.run(output),
            Command::Tokenize(command) => command.run(output),
            Command::Bench(command) => command.run(output),
            Command::Simulate(command) => command.run(output),
        }
    }
}
