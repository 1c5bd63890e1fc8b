//! Repeated runs of one kernel, and what they come to.

use std::time::{Duration, Instant};

use ropeway_kernels::limits::Limits;

use super::effort::BEYOND_CACHES;
use crate::commands::bench::statistics::median;

/// Runs of one measurement, at most: more add nothing to the best of them.
const MOST_RUNS: usize = 2000;

/// Seconds of a run. The best counts, as it does for the machine's limits: others only lose time to neighbours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    pub best: f64,
    pub median: f64,
}

impl Timing {
    /// Of several runs; there must be one.
    pub fn of(seconds: Vec<f64>) -> Self {
        assert!(!seconds.is_empty(), "nothing was run");
        Self { best: seconds.iter().copied().fold(f64::MAX, f64::min), median: median(seconds) }
    }
}

/// Seconds that `work` takes.
pub fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// Calls `round` until the budget is spent. The first call, which warms up, counts only if it left no time for
/// another.
pub fn rounds<T>(budget: Duration, mut round: impl FnMut() -> T) -> Vec<T> {
    let start = Instant::now();
    let mut all = vec![round()];
    while start.elapsed() < budget && all.len() <= MOST_RUNS {
        all.push(round());
    }
    if all.len() > 1 {
        all.remove(0);
    }
    all
}

/// Runs `work` until the budget is spent.
pub fn repeat(budget: Duration, mut work: impl FnMut()) -> Timing {
    Timing::of(rounds(budget, || seconds(&mut work)))
}

/// Which limit of the machine a kernel's operations run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    IntDot,
    F32,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Self::IntDot => "int_dot",
            Self::F32 => "f32",
        }
    }

    /// Billions of operations a second, at most.
    pub fn limit(self, machine: &Limits) -> f64 {
        match self {
            Self::IntDot => machine.int_dot_gops,
            Self::F32 => machine.f32_gflops,
        }
    }
}

/// Multiplications and additions of one run.
#[derive(Clone, Copy, Debug)]
pub struct Operations {
    pub count: f64,
    pub unit: Unit,
}

/// Bytes of weights, keys and values, or rows that one run reads.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    pub bytes: usize,
    /// Bytes read before the same ones are read again.
    pub cycle: usize,
}

impl Reading {
    /// The same bytes in every run.
    pub fn again(bytes: usize) -> Self {
        Self { bytes, cycle: bytes }
    }

    /// Whether no cache can have held the bytes since they were last read.
    pub fn is_from_memory(self) -> bool {
        self.cycle >= BEYOND_CACHES
    }
}

/// One kernel at one size.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Section of the report.
    pub group: &'static str,
    /// The kernel's variant.
    pub kernel: String,
    /// Its size besides rows.
    pub shape: String,
    pub rows: usize,
    pub timing: Timing,
    /// None where arithmetic is not what the kernel is about.
    pub operations: Option<Operations>,
    pub reading: Reading,
}

impl Measurement {
    /// Billions of operations a second.
    pub fn gops(&self) -> Option<f64> {
        self.operations.map(|operations| operations.count / self.timing.best / 1e9)
    }

    /// Part of the machine's limit that is used.
    pub fn share(&self, machine: &Limits) -> Option<f64> {
        Some(self.gops()? / self.operations?.unit.limit(machine))
    }

    /// Billions of bytes read a second.
    pub fn gb_s(&self) -> f64 {
        self.reading.bytes as f64 / self.timing.best / 1e9
    }

    /// Part of the memory's limit that is used, where it is memory that was read.
    pub fn read_share(&self, machine: &Limits) -> Option<f64> {
        self.reading.is_from_memory().then(|| self.gb_s() / machine.read_gb_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_counts_only_when_there_is_nothing_else() {
        let mut calls = 0;
        let mut next = || {
            calls += 1;
            calls
        };
        assert_eq!(rounds(Duration::ZERO, &mut next), [1]);
        assert_eq!(rounds(Duration::MAX, &mut next).len(), MOST_RUNS);
    }

    #[test]
    fn shares_are_of_the_limit_the_kernel_runs_against() {
        let machine = Limits { int_dot_gops: 400.0, f32_gflops: 100.0, read_gb_s: 10.0 };
        let mut measurement = Measurement {
            group: "matmul",
            kernel: String::new(),
            shape: String::new(),
            rows: 1,
            timing: Timing::of(vec![3.0, 1.0, 2.0]),
            operations: Some(Operations { count: 1e11, unit: Unit::IntDot }),
            reading: Reading { bytes: 5_000_000_000, cycle: BEYOND_CACHES },
        };
        assert_eq!(measurement.timing, Timing { best: 1.0, median: 2.0 });
        assert_eq!(measurement.share(&machine), Some(0.25));
        assert_eq!(measurement.read_share(&machine), Some(0.5));
        measurement.reading = Reading::again(1000);
        assert_eq!(measurement.read_share(&machine), None);
    }
}
