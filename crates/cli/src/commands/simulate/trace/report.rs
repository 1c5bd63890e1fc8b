//! A replay's result, as a table and as JSON.

use std::io::{self, Write};
use std::path::Path;

use ropeway_testkit::simulate::hardware::{DiskSpeed, Hardware};
use ropeway_testkit::simulate::{Experience, Found, Times};
use ropeway_testkit::trace::Trace;
use serde_json::{Value, json};

use super::super::report::{class_json, seconds};
use super::{Bound, Outcome};
use crate::output::Output;

/// What was replayed on what.
pub struct Subject<'a> {
    pub path: &'a Path,
    pub trace: &'a Trace,
    /// Requests that were cut to fit.
    pub cut: usize,
    pub hardware: Hardware,
    pub speed: f64,
    pub disk: DiskSpeed,
}

/// Prints a table per policy.
pub fn print(
    output: &mut Output,
    subject: &Subject<'_>,
    bound: &Bound,
    outcomes: &[Outcome],
) -> io::Result<()> {
    let Subject { path, trace, cut, hardware, speed, disk } = subject;
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.display().to_string());
    let recorded = trace.duration().as_secs_f64();
    writeln!(output, "{name}: {} requests in {:.0} s ({speed}x)", trace.len(), recorded / speed)?;
    if *cut > 0 {
        writeln!(output, "{cut} of them are cut: prompt and answer have to fit into context and memory")?;
    }
    writeln!(output, "{}: {}", hardware.name, hardware.about)?;
    if outcomes.iter().any(|outcome| outcome.disk.is_some()) {
        writeln!(output, "disk: {:.1} GB/s read, {:.1} GB/s written", disk.read / 1e9, disk.write / 1e9)?;
    }
    print_bound(output, bound)?;
    let mut policy = None;
    for outcome in outcomes {
        if policy.replace(outcome.policy) != Some(outcome.policy) {
            print_heading(output, outcome)?;
        }
        print_row(output, outcome)?;
    }
    Ok(())
}

/// What an endless cache finds.
fn print_bound(output: &mut Output, Bound { counted, found }: &Bound) -> io::Result<()> {
    let share = |part: u64| 100.0 * part as f64 / counted.blocks.max(1) as f64;
    writeln!(
        output,
        "endless cache: {} of {} prompt blocks came before ({:.2} %); whole ones without a prompt's last token, as an \
         engine finds them: {} ({:.2} %)",
        counted.repeated,
        counted.blocks,
        share(counted.repeated),
        found.memory,
        share(found.memory),
    )
}

fn print_heading(output: &mut Output, outcome: &Outcome) -> io::Result<()> {
    writeln!(output)?;
    writeln!(
        output,
        "{:<10} {:<10}|{:^24} |{:^23} |{:^15} |{:>8} {:>6} |{:>7} {:>5}",
        outcome.policy.name(),
        "",
        "prompt blocks",
        "first token",
        "between tokens",
        "",
        "",
        "",
        ""
    )?;
    writeln!(
        output,
        "{:<10} {:<10}|{:>7} {:>7} {:>8} |{:>7} {:>7} {:>7} |{:>7} {:>7} |{:>8} {:>6} |{:>7} {:>5}",
        "memory",
        "disk",
        "memory",
        "disk",
        "computed",
        "p50",
        "p90",
        "p99",
        "p50",
        "p99",
        "answered",
        "failed",
        "tok/s",
        "busy"
    )
}

fn print_row(output: &mut Output, Outcome { memory, disk, report, .. }: &Outcome) -> io::Result<()> {
    let (seen, [in_memory, on_disk, computed]) = (report.everyone(), shares(report.found));
    let at = |times: &Times, share: f64| seconds(times.quantile(share));
    let disk = disk.map_or_else(|| "none".to_owned(), |disk| disk.to_string());
    writeln!(
        output,
        "{memory:<10} {disk:<10}|{:>7} {:>7} {:>8} |{:>7} {:>7} {:>7} |{:>7} {:>7} |{:>8} {:>6} |{:>7.0} {:>5}",
        percent(in_memory),
        percent(on_disk),
        percent(computed),
        at(&seen.first_token, 0.5),
        at(&seen.first_token, 0.9),
        at(&seen.first_token, 0.99),
        at(&seen.inter_token, 0.5),
        at(&seen.inter_token, 0.99),
        seen.answered,
        failed(&seen),
        report.tokens_per_second(),
        format!("{:.0} %", 100.0 * report.utilisation()),
    )
}

/// Everything, for programs.
pub fn json(subject: &Subject<'_>, bound: &Bound, outcomes: &[Outcome]) -> Value {
    let Subject { trace, cut, hardware, speed, disk, path } = subject;
    json!({
        "trace": path.display().to_string(),
        "requests": trace.len(),
        "cut_requests": cut,
        "speed": speed,
        "machine": hardware.name,
        "disk": { "read_bytes_s": disk.read, "write_bytes_s": disk.write },
        "prompt_blocks": bound.counted.blocks,
        "endless": { "repeated_blocks": bound.counted.repeated, "found_blocks": bound.found.memory },
        "runs": outcomes.iter().map(run_json).collect::<Vec<_>>(),
    })
}

fn run_json(Outcome { policy, memory, disk, report }: &Outcome) -> Value {
    let Found { blocks, memory: in_memory, disk: on_disk } = report.found;
    json!({
        "policy": policy.name(),
        "kv_memory": memory.to_string(),
        "kv_disk": disk.map(|disk| disk.to_string()),
        "prompt_blocks": blocks,
        "found_in_memory": in_memory,
        "found_on_disk": on_disk,
        "blocks_not_stored": report.lost_blocks,
        "simulated_s": report.elapsed.as_secs_f64(),
        "steps": report.steps,
        "tok_s": report.tokens_per_second(),
        "utilisation": report.utilisation(),
        "preempted": report.preempted,
        "all": class_json(&report.everyone()),
    })
}

/// Shares of prompt blocks: in memory, on disk, computed.
fn shares(Found { blocks, memory, disk }: Found) -> [f64; 3] {
    [memory, disk, blocks - memory - disk].map(|part| part as f64 / blocks.max(1) as f64)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Requests that were turned down, timed out or failed.
fn failed(seen: &Experience) -> u64 {
    seen.rejected + seen.failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all_blocks() {
        let all = shares(Found { blocks: 8, memory: 1, disk: 2 });
        assert_eq!(all.map(percent), ["12.5 %", "25.0 %", "62.5 %"]);
        assert_eq!(shares(Found::default()).map(percent), ["0.0 %"; 3]);
    }
}
