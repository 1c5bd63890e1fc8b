//! `ropeway config`: the settings that `ropeway serve` would run with.

use std::io::Write;

use clap::Args;

use super::serve::Serve;
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Resolved;

const EXAMPLES: &str = "\
Examples:
  ropeway config                          what `ropeway serve` would do
  ropeway config --listen 0.0.0.0:80      with a flag more
  ropeway config > ropeway.toml           a file to start from
Flags win over the environment (ROPEWAY_LISTEN for --listen), which wins over
ropeway.toml (listen = [...]): --config FILE, or the one in this folder, or
~/.config/ropeway/ropeway.toml.";

/// Print the settings of `ropeway serve`, and where each comes from
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Config {
    #[command(flatten)]
    serve: Serve,
}

impl Config {
    pub fn run(self, output: &mut Output, resolved: &Resolved) -> Result<(), Failure> {
        // What could not be served is not printed as if it could.
        self.serve.check()?;
        Ok(write!(output, "{resolved}")?)
    }
}
