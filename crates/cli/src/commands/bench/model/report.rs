//! What `ropeway bench model` found, for people and as JSON.

use std::fmt;
use std::io::Write;

use ropeway_kernels::limits::Limits;
use serde_json::{Value, json};

use crate::output::Output;

/// How fast something was.
pub struct Rate {
    pub of: usize,
    pub tokens_per_second: f64,
    /// Compute threads that its steps settled on; `None` on a GPU.
    pub threads: Option<usize>,
}

/// What is measured.
pub struct Subject {
    pub name: String,
    /// What it runs on, in words.
    pub device: String,
    pub weight_bytes: usize,
    /// The CPU that it runs on.
    pub cpu: Option<Cpu>,
}

pub struct Cpu {
    pub isa: &'static str,
    pub threads: usize,
    /// What it can do at most.
    pub machine: Limits,
}

pub struct Report {
    pub subject: Subject,
    pub held: usize,
    pub prefill: Vec<Rate>,
    pub decode: Vec<Rate>,
}

impl Report {
    /// For programs.
    pub fn json(&self) -> Value {
        let prefill = |rate: &Rate| json!({ "tokens": rate.of, "tok_s": rate.tokens_per_second, "threads": rate.threads });
        let decode = |rate: &Rate| {
            let Rate { of, tokens_per_second, threads } = rate;
            json!({ "batch": of, "context": self.held, "tok_s": tokens_per_second, "threads": threads })
        };
        let Subject { name, device, weight_bytes, cpu } = &self.subject;
        let mut report = json!({
            "model": name,
            "device": device,
            "weight_bytes": weight_bytes,
            "prefill": self.prefill.iter().map(prefill).collect::<Vec<_>>(),
            "decode": self.decode.iter().map(decode).collect::<Vec<_>>(),
        });
        if let Some(Cpu { isa, threads, machine }) = cpu {
            (report["isa"], report["threads"]) = (json!(isa), json!(threads));
            report["machine"] = json!({
                "int_dot_gops": machine.int_dot_gops,
                "f32_gflops": machine.f32_gflops,
                "read_gb_s": machine.read_gb_s,
            });
        }
        report
    }

    /// For people.
    pub fn print(&self, output: &mut Output) -> std::io::Result<()> {
        let Subject { name, device, cpu, .. } = &self.subject;
        writeln!(output, "{name} on {device}")?;
        if let Some(Limits { int_dot_gops, f32_gflops, read_gb_s }) = cpu.as_ref().map(|cpu| cpu.machine) {
            writeln!(
                output,
                "machine: {int_dot_gops:.0} Gop/s int8 dot, {f32_gflops:.0} GFLOP/s f32, {read_gb_s:.1} GB/s read"
            )?;
        }
        for rate in &self.prefill {
            writeln!(output, "prefill {:>6} tokens   {rate}", rate.of)?;
        }
        for rate in &self.decode {
            writeln!(output, "decode  {:>6} streams  {rate}{}", rate.of, self.of_memory_limit(rate))?;
        }
        Ok(())
    }

    /// How close a single stream is to what reading the weights takes on this CPU.
    fn of_memory_limit(&self, rate: &Rate) -> String {
        let Subject { cpu: Some(cpu), weight_bytes, .. } = &self.subject else { return String::new() };
        if rate.of != 1 {
            return String::new();
        }
        let limit = cpu.machine.read_gb_s * 1e9 / *weight_bytes as f64;
        let share = 100.0 * rate.tokens_per_second / limit;
        format!("  ({share:.0} % of the memory limit, {limit:.0})")
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.1} tok/s", self.tokens_per_second)?;
        self.threads.map_or(Ok(()), |threads| write!(f, "  {threads:>3} threads"))
    }
}
