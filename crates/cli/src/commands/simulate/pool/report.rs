//! Tables of what pools came to.

use std::io::{self, Write};
use std::path::Path;

use ropeway_engine::Class;
use ropeway_testkit::simulate::hardware::Hardware;
use ropeway_testkit::simulate::{Experience, Times};
use ropeway_testkit::trace::Trace;
use ropeway_testkit::trace::endless::Endless;

use super::super::report::seconds;
use super::scenario::{Run, Scenario};
use crate::output::Output;

/// What was simulated.
pub struct Subject<'a> {
    pub hardware: &'a Hardware,
    pub seed: Option<u64>,
}

/// A trace that was replayed.
pub struct Replayed<'a> {
    pub path: &'a Path,
    pub trace: &'a Trace,
    /// Requests that were cut to fit.
    pub cut: usize,
    pub speed: f64,
    /// What an endless cache would find.
    pub endless: Endless,
}

impl Replayed<'_> {
    /// The file's name.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.display().to_string()
    }
}

/// Prints what users came to: a table per size and scenario.
pub fn users(output: &mut Output, subject: &Subject<'_>, runs: &[Run]) -> io::Result<()> {
    let Subject { hardware, seed } = subject;
    writeln!(output, "{}: {}, seed {}", hardware.name, hardware.about, seed.unwrap_or(0))?;
    for group in runs.chunk_by(|a, b| (a.servers, a.scenario) == (b.servers, b.scenario)) {
        let [first, ..] = group else { continue };
        writeln!(output)?;
        print_head(output, first)?;
        match first.scenario {
            Some(Scenario::Routing) | None => print_routing(output, group)?,
            Some(Scenario::Failures) => print_failures(output, group)?,
            Some(Scenario::Overload) => print_overload(output, group)?,
        }
    }
    Ok(())
}

fn print_head(output: &mut Output, run: &Run) -> io::Result<()> {
    let Run { servers, load, outcome, scenario, .. } = run;
    let throughput = &outcome.throughput;
    let name = scenario.map_or("trace", Scenario::name);
    writeln!(
        output,
        "{name}: {servers} upstreams, load {load}, {} requests, {:.0} a second for {:.0} s",
        outcome.asked,
        throughput.requests_per_second(),
        throughput.seconds
    )
}

fn print_routing(output: &mut Output, runs: &[Run]) -> io::Result<()> {
    writeln!(
        output,
        "  {:<13}|{:>17} |{:>26} |{:>15} |{:>8} |{:>15}",
        "", "prompt tokens", "first token", "total", "", "window"
    )?;
    writeln!(
        output,
        "  {:<13}|{:>8} {:>8} |{:>8} {:>8} {:>8} |{:>7} {:>7} |{:>8} |{:>4} {:>5} {:>4}",
        "routing", "cached", "expected", "p50", "p90", "p99", "p50", "p99", "tok/s", "min", "mean", "max"
    )?;
    for Run { label, outcome, .. } in runs {
        let (seen, windows) = (outcome.everyone(), outcome.throughput.windows);
        let expected = outcome.expected_tokens as f64 / outcome.prompt_tokens.max(1) as f64;
        writeln!(
            output,
            "  {label:<13}|{:>8} {:>8} |{} |{} |{:>8.0} |{:>4} {:>5.0} {:>4}",
            percent(outcome.hits()),
            percent(expected),
            quantiles(&seen.first_token),
            pair(&seen.total),
            outcome.throughput.tokens_per_second(),
            windows.least,
            windows.mean,
            windows.most,
        )?;
    }
    Ok(())
}

fn print_failures(output: &mut Output, runs: &[Run]) -> io::Result<()> {
    writeln!(
        output,
        "  {:<13}|{:>7} {:>7} {:>7} {:>5} {:>5} |{:>26} |{:>15}",
        "each dies", "", "moved", "tried", "", "", "first token", "gap of moved"
    )?;
    writeln!(
        output,
        "  {:<13}|{:>7} {:>7} {:>7} {:>5} {:>5} |{:>8} {:>8} {:>8} |{:>7} {:>7}",
        "every", "deaths", "streams", "again", "lost", "429", "p50", "p90", "p99", "p50", "p99"
    )?;
    for Run { label, outcome, .. } in runs {
        let seen = outcome.everyone();
        writeln!(
            output,
            "  {label:<13}|{:>7} {:>7} {:>7} {:>5} {:>5} |{} |{}",
            outcome.deaths,
            outcome.moved,
            outcome.retried,
            outcome.lost,
            seen.rejected,
            quantiles(&seen.first_token),
            pair(&outcome.gaps),
        )?;
    }
    Ok(())
}

fn print_overload(output: &mut Output, runs: &[Run]) -> io::Result<()> {
    writeln!(
        output,
        "  {:<13}|{:>8} {:>8} {:>7} |{:>26} |{:>15}",
        "", "answered", "429", "", "first token", "total"
    )?;
    for run in runs {
        print_classes(output, run)?;
    }
    Ok(())
}

fn print_classes(output: &mut Output, run: &Run) -> io::Result<()> {
    let Run { label, outcome, .. } = run;
    writeln!(
        output,
        "  {label:<13}|{:>8} {:>8} {:>7} |{:>8} {:>8} {:>8} |{:>7} {:>7}",
        "", "", "", "p50", "p90", "p99", "p50", "p99"
    )?;
    for (name, seen) in groups(run) {
        let refused = seen.rejected as f64 / (seen.answered + seen.rejected).max(1) as f64;
        writeln!(
            output,
            "    {name:<11}|{:>8} {:>8} {:>7} |{} |{}",
            seen.answered,
            seen.rejected,
            percent(refused),
            quantiles(&seen.first_token),
            pair(&seen.total),
        )?;
    }
    writeln!(
        output,
        "    {:.0} tok/s; waited at most: {} in the queue, {} at an upstream",
        outcome.throughput.tokens_per_second(),
        outcome.most_waiting,
        outcome.most_waiting_there
    )
}

/// Classes, and the accounts that ask for far more; without those that nobody came with.
pub fn groups(run: &Run) -> impl Iterator<Item = (&'static str, &Experience)> {
    let classes = Class::ALL.into_iter().zip(&run.outcome.classes).map(|(class, seen)| (class.name(), seen));
    let all = classes.chain(std::iter::once(("8 accounts", &run.outcome.heavy)));
    all.filter(|(_, seen)| seen.answered + seen.rejected + seen.failed > 0)
}

/// Prints a replay: a row per size and routing.
pub fn trace(
    output: &mut Output,
    subject: &Subject<'_>,
    replayed: &Replayed<'_>,
    runs: &[Run],
) -> io::Result<()> {
    let Replayed { trace, cut, speed, endless, .. } = replayed;
    let recorded = trace.duration().as_secs_f64();
    writeln!(
        output,
        "{}: {} requests in {:.0} s ({speed}x)",
        replayed.name(),
        trace.len(),
        recorded / speed
    )?;
    if *cut > 0 {
        writeln!(output, "{cut} of them are cut: prompt and answer have to fit into context and memory")?;
    }
    writeln!(output, "{}: {}", subject.hardware.name, subject.hardware.about)?;
    let share = |part: u64| percent(part as f64 / endless.blocks.max(1) as f64);
    writeln!(
        output,
        "endless cache: {} of {} prompt blocks came before; {} can be found by a server",
        share(endless.repeated),
        endless.blocks,
        share(endless.findable)
    )?;
    for group in runs.chunk_by(|a, b| a.servers == b.servers) {
        writeln!(output)?;
        print_replay(output, group)?;
    }
    Ok(())
}

fn print_replay(output: &mut Output, runs: &[Run]) -> io::Result<()> {
    let servers = runs.first().map_or(0, |run| run.servers);
    writeln!(
        output,
        "  {:<13}|{:>8} |{:>26} |{:>15} |{:>8} {:>6} |{:>5} {:>6}",
        format!("{servers} upstreams"),
        "blocks",
        "first token",
        "total",
        "answered",
        "failed",
        "busy",
        "most/"
    )?;
    writeln!(
        output,
        "  {:<13}|{:>8} |{:>8} {:>8} {:>8} |{:>7} {:>7} |{:>8} {:>6} |{:>5} {:>6}",
        "routing", "cached", "p50", "p90", "p99", "p50", "p99", "", "", "", "mean"
    )?;
    for Run { label, outcome, .. } in runs {
        let seen = outcome.everyone();
        writeln!(
            output,
            "  {label:<13}|{:>8} |{} |{} |{:>8} {:>6} |{:>5} {:>6.2}",
            percent(outcome.block_hits()),
            quantiles(&seen.first_token),
            pair(&seen.total),
            seen.answered,
            seen.failed + seen.rejected,
            format!("{:.0} %", 100.0 * outcome.throughput.utilisation()),
            outcome.throughput.imbalance(),
        )?;
    }
    Ok(())
}

fn quantiles(times: &Times) -> String {
    let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|share| seconds(times.quantile(share)));
    format!("{p50:>8} {p90:>8} {p99:>8}")
}

fn pair(times: &Times) -> String {
    let [p50, p99] = [0.5, 0.99].map(|share| seconds(times.quantile(share)));
    format!("{p50:>7} {p99:>7}")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
