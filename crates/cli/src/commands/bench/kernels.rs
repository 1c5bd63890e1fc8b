//! `ropeway bench kernels`: every kernel next to the machine's measured limits.

use clap::Args;

use crate::failure::Failure;
use crate::output::Output;

/// Measure single kernels against the machine's limits
#[derive(Debug, Args)]
pub struct Kernels {}

impl Kernels {
    pub fn run(self, _output: &mut Output) -> Result<(), Failure> {
        Ok(())
    }
}
