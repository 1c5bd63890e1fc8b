//! `ropeway bench compare`: several runs of `bench serve` side by side, as ratios to the first.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use super::serve::html::{common_loads, page};
use super::serve::summary::{Load, Point, Run};
use super::serve::table::{asked, percentiles, shown};
use crate::failure::Failure;
use crate::output::{Output, tell};

/// Compare servers measured by `ropeway bench serve --json`
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  ropeway bench compare ropeway.json llama.json --report both.html")]
pub struct Compare {
    /// Files written by `ropeway bench serve --json`; ratios are to the first
    #[arg(value_name = "FILES", num_args = 2.., required = true)]
    files: Vec<PathBuf>,
    /// Write a page with plots to this file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

impl Compare {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        let runs: Vec<Run> = self.files.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
        warn_of_differences(&runs);
        write!(output, "{}", table(&runs))?;
        if let Some(path) = &self.report {
            std::fs::write(path, page(&runs))?;
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Run, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::new(
            format!("{} can't be read: {error}", path.display()),
            "give files written by `ropeway bench serve --json FILE`",
        )
    };
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(&error))?;
    serde_json::from_str(&text).map_err(|error| unreadable(&error))
}

/// Runs that were asked for different things are not comparable without a word.
fn warn_of_differences(runs: &[Run]) {
    for other in &runs[1..] {
        if asked(other) != asked(&runs[0]) {
            tell(&format!(
                "warning: {} was measured with {}, {} with {}",
                runs[0].label,
                asked(&runs[0]),
                other.label,
                asked(other)
            ));
        }
    }
}

fn table(runs: &[Run]) -> String {
    let mut text = String::new();
    let wide = runs.iter().map(|run| run.label.chars().count()).max().unwrap_or(0).max(8);
    for load in common_loads(runs) {
        let _ = writeln!(
            text,
            "{:<wide$}  {:>17}  {:>20}  {:>20}  {:>20}  errors",
            load.to_string(),
            "tok/s",
            "first p50 ms",
            "between p50 ms",
            "total p50 ms"
        );
        let points = || runs.iter().filter_map(|run| Some((run, at(run, load)?)));
        let Some((_, base)) = points().next() else { continue };
        for (run, point) in points() {
            let _ = write!(
                text,
                "{:<wide$}  {}",
                run.label,
                beside(Some(point.output_tok_s), Some(base.output_tok_s), 17)
            );
            for (own, first) in medians(point).into_iter().zip(medians(base)) {
                let _ = write!(text, "  {}", beside(own, first, 20));
            }
            let _ = writeln!(text, "  {:>6}", point.failed());
        }
    }
    for run in runs {
        if let Some(trio) = &run.trio {
            let _ = write!(text, "{}\n{trio}", run.label);
        }
    }
    if text.is_empty() {
        text.push_str("the runs have no load in common\n");
    }
    text
}

fn at(run: &Run, load: Load) -> Option<&Point> {
    run.points.iter().find(|point| point.load == load)
}

fn medians(point: &Point) -> [Option<f64>; 3] {
    [&point.first_token_ms, &point.inter_token_ms, &point.total_ms]
        .map(|spread| percentiles(spread.as_ref())[0])
}

/// A value and its ratio to the first run's.
fn beside(value: Option<f64>, first: Option<f64>, wide: usize) -> String {
    let ratio = value.zip(first).map(|(value, first)| value / first).filter(|ratio| ratio.is_finite());
    format!("{:>wide$}", format!("{} ({}x)", shown(value, 1), shown(ratio, 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(label: &str, users: &[usize], tok_s: f64) -> Run {
        let point =
            |users: &usize| Point { output_tok_s: tok_s, ..Point::of(Load::Concurrency(*users), &[]) };
        Run {
            ropeway: "0".into(),
            label: label.into(),
            url: "http://x".into(),
            model: "<m>".into(),
            endpoint: "completions".into(),
            prompt: "100".into(),
            output: "64".into(),
            shared_prefix: 0,
            trace: None,
            seed: 1,
            exact_prompts: true,
            interrupted: false,
            points: users.iter().map(point).collect(),
            trio: None,
        }
    }

    #[test]
    fn runs_are_compared_at_the_loads_they_share() {
        let text = table(&[run("ours", &[1, 10], 200.0), run("theirs", &[10, 64], 100.0)]);
        assert!(text.contains("10 at once") && !text.contains("64 at once"), "{text}");
        assert!(text.contains("200.0 (1.00x)") && text.contains("100.0 (0.50x)"), "{text}");
        assert!(table(&[run("a", &[1], 1.0), run("b", &[2], 1.0)]).contains("no load in common"));
    }

    #[test]
    fn a_page_is_drawn_even_where_nothing_was_measured() {
        let html = page(&[run("a", &[1, 2], 0.0), run("<b>", &[1, 2], 0.0)]);
        assert!(html.ends_with("</body></html>\n") && html.contains("<svg"));
        assert!(!html.contains("<b>") && !html.contains("<m>"), "what servers say is escaped");
    }
}
