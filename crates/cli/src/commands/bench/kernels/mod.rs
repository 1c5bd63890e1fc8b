//! `ropeway bench kernels`: every kernel next to the machine's measured limits.
//!
//! ```text
//! effort.rs     what is measured, and for how long
//! timing.rs     repeated runs of one kernel, and what they come to
//! products.rs   matrix products       attention.rs  prefill and decode       rows.rs  prepare, route
//! report.rs     the table and the JSON
//! ```
//! Operands are made up: speed does not depend on their values. Nothing is downloaded or read from disk.

mod attention;
mod effort;
mod products;
mod report;
mod rows;
mod timing;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use ropeway_kernels::{Compute, Isa, limits};
use ropeway_machine::Threads;

use crate::failure::Failure;
use crate::output::Output;
use effort::Effort;
use report::Report;
use timing::Measurement;

/// Measure single kernels against the machine's limits
#[derive(Debug, Args)]
pub struct Kernels {
    /// Compute threads (default: one per core)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Instruction set: avx512-vnni, avx2, portable or reference (default: the
    /// best this CPU has)
    #[arg(long, value_name = "NAME", value_parser = Isa::named)]
    isa: Option<Isa>,
    /// Only the most telling measurements, in a few seconds
    #[arg(long)]
    quick: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Kernels {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        let isa = self.isa.unwrap_or_else(Isa::best);
        let threads = self.threads.map_or_else(|| Threads::available().most(), usize::from);
        let mut compute = Compute::new(isa, threads);
        let effort = if self.quick { Effort::quick() } else { Effort::full() }.bounded_for(isa);
        let machine = limits::measure(isa, compute.pool());
        let measurements = measure(&mut compute, &effort);
        let report = Report { isa, threads: compute.threads(), machine, measurements };
        if self.json { Ok(output.json(&report.json())?) } else { Ok(report.print(output)?) }
    }
}

fn measure(compute: &mut Compute, effort: &Effort) -> Vec<Measurement> {
    let bar = progress(effort);
    let mut all = Vec::new();
    for &weights in &effort.weights {
        all.extend(products::measure(compute, weights, effort));
        bar.inc(1);
    }
    for &format in &effort.kv_formats {
        all.extend(attention::measure(compute, format, effort));
        bar.inc(1);
    }
    all.extend(rows::measure(compute, effort));
    bar.finish_and_clear();
    all
}

/// One step per call above; drawn on a terminal only.
fn progress(effort: &Effort) -> ProgressBar {
    let style = ProgressStyle::with_template("measuring   [{bar:30}] {pos}/{len}");
    let bar = ProgressBar::new((effort.weights.len() + effort.kv_formats.len() + 1) as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.tick();
    bar
}
