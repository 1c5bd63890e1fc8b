//! What `ropeway bench kernels` prints: a table of 100 columns, or JSON.

use std::io::{self, Write};

use ropeway_kernels::Isa;
use ropeway_kernels::limits::Limits;
use serde_json::{Value, json};

use super::timing::Measurement;

/// Everything measured, and on what.
pub struct Report {
    pub isa: Isa,
    pub threads: usize,
    pub machine: Limits,
    pub measurements: Vec<Measurement>,
}

impl Report {
    pub fn json(&self) -> Value {
        let Limits { int_dot_gops, f32_gflops, read_gb_s } = self.machine;
        json!({
            "isa": self.isa.name(),
            "threads": self.threads,
            "machine": { "int_dot_gops": int_dot_gops, "f32_gflops": f32_gflops, "read_gb_s": read_gb_s },
            "kernels": self.measurements.iter().map(|one| self.entry(one)).collect::<Vec<_>>(),
        })
    }

    /// Shares are fractions; what does not apply is null.
    fn entry(&self, one: &Measurement) -> Value {
        json!({
            "group": one.group,
            "kernel": one.kernel,
            "shape": one.shape,
            "rows": one.rows,
            "us": one.timing.best * 1e6,
            "median_us": one.timing.median * 1e6,
            "gops": one.gops(),
            "limit": one.operations.map(|operations| operations.unit.name()),
            "share": one.share(&self.machine),
            "gb_s": one.gb_s(),
            "from": source(one),
            "read_share": one.read_share(&self.machine),
        })
    }

    pub fn print(&self, output: &mut impl Write) -> io::Result<()> {
        let Limits { int_dot_gops, f32_gflops, read_gb_s } = self.machine;
        writeln!(output, "{} with {} threads; the best of several runs counts", self.isa, self.threads)?;
        writeln!(
            output,
            "machine: {int_dot_gops:.0} Gop/s int8 dot, {f32_gflops:.0} GFLOP/s f32, {read_gb_s:.1} GB/s read"
        )?;
        let mut group = "";
        for one in &self.measurements {
            if one.group != group {
                group = one.group;
                writeln!(output, "\n{}", heading(group))?;
            }
            writeln!(output, "{}", self.line(one))?;
        }
        Ok(())
    }

    fn line(&self, one: &Measurement) -> String {
        let gops = one.gops().map_or_else(|| "-".to_owned(), |gops| format!("{gops:.1}"));
        let limit = one.operations.map_or("", |operations| operations.unit.name());
        let share = one.share(&self.machine).map_or_else(|| "-".to_owned(), percent);
        let read = one.read_share(&self.machine).map_or_else(String::new, percent);
        let us = one.timing.best * 1e6;
        let line = format!(
            "{:<17} {:<15} {:>5} {us:>11.1} {gops:>9} {share:>6} {limit:<8} {:>8.1} {:<7} {read:>5}",
            one.kernel,
            one.shape,
            one.rows,
            one.gb_s(),
            source(one),
        );
        line.trim_end().to_owned()
    }
}

fn heading(group: &str) -> String {
    format!(
        "{group:<17} {:<15} {:>5} {:>11} {:>9} {:>6} {:<8} {:>8} {:<7} {:>5}",
        "shape", "rows", "us", "Gop/s", "share", "of", "GB/s", "from", "share"
    )
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Where the bytes came from, as far as one can be sure: below a certain size, caches may have served them.
fn source(one: &Measurement) -> &'static str {
    if one.reading.is_from_memory() { "memory" } else { "cached" }
}

#[cfg(test)]
mod tests {
    use super::super::timing::{Operations, Reading, Timing, Unit};
    use super::*;

    #[test]
    fn the_table_fits_100_columns() {
        let measurement = Measurement {
            group: "matmul",
            kernel: "int8 mins narrow".to_owned(),
            shape: "2000 keys each".to_owned(),
            rows: 4000,
            timing: Timing { best: 2.5, median: 2.5 },
            operations: Some(Operations { count: 1e12, unit: Unit::IntDot }),
            reading: Reading { bytes: 1 << 32, cycle: 1 << 32 },
        };
        let machine = Limits { int_dot_gops: 1e4, f32_gflops: 1e3, read_gb_s: 100.0 };
        let report = Report { isa: Isa::reference(), threads: 64, machine, measurements: vec![measurement] };
        let mut text = Vec::new();
        report.print(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().count(), 5);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.contains("2500000.0     400.0    4 % int_dot"), "{text}");
    }
}
