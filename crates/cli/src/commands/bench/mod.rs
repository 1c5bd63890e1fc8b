//! `ropeway bench`: how fast this machine is, and how much of it is used.

mod embed;
mod engine;
mod kernels;
mod model;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  ropeway bench model                 prefill and decode of the default model
  ropeway bench model --json > a.json
  ropeway bench engine                many requests at once
  ropeway bench embed                 texts a second through the embedder
  ropeway bench kernels               every kernel against the machine's limits
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
    Engine(engine::Engine),
    Kernels(kernels::Kernels),
}

impl Bench {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        match self.what {
            What::Model(command) => command.run(output),
            What::Embed(command) => command.run(output),
            What::Engine(command) => command.run(output),
            What::Kernels(command) => command.run(output),
        }
    }
}

/// The middle of several measurements.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What `share` (of 1) of the values do not exceed.
fn percentile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (share * values.len() as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_one_outlier() {
        assert!((median(vec![1.0, 100.0, 2.0]) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        let at = |share| percentile(values.clone(), share) as u32;
        assert_eq!((at(0.5), at(0.99), at(1.0)), (100, 198, 200));
    }
}
