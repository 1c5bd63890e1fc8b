//! A run as a table for people.

use std::fmt;

use super::summary::{Point, Replayed, Run, Spread};

/// A run, ready to be printed.
pub struct Table<'a>(pub &'a Run);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = self.0;
        writeln!(f, "{} at {}, {}", run.model, run.url, asked(run))?;
        if !run.points.is_empty() {
            writeln!(f, "{:<14}{}", "load", heading())?;
        }
        for point in &run.points {
            writeln!(f, "{:<14}{}", point.load.to_string(), Row(point))?;
        }
        for point in &run.points {
            for (kind, failed) in &point.errors {
                writeln!(f, "{}: {} x {kind}, such as: {}", point.load, failed.count, failed.example)?;
            }
        }
        if let Some(trio) = &run.trio {
            write!(f, "{trio}")?;
        }
        if run.interrupted {
            writeln!(f, "interrupted: the last load is incomplete")?;
        }
        Ok(())
    }
}

/// What the requests were like.
pub fn asked(run: &Run) -> String {
    if let Some(Replayed { file, speed, requests, cut_requests }) = &run.trace {
        let cut = format!("{cut_requests} of them cut to its context");
        return format!("{}: {requests} requests of {file} at {speed}x, {cut}", run.endpoint);
    }
    let shared = match run.shared_prefix {
        0 => String::new(),
        tokens => format!("{tokens} shared + "),
    };
    format!("{}: {shared}{} tokens in, {} out", run.endpoint, run.prompt, run.output)
}

fn heading() -> String {
    format!(
        "{:>9}{:>8}  {:^23}  {:^20}  {:^23}  {:>7}{:>7}{:>8}",
        "tok/s", "req/s", "first token ms", "between tokens ms", "total ms", "prompt", "errors", "own CPU"
    ) + &format!(
        "\n{:14}{:17}  {:>7}{:>8}{:>8}  {:>6}{:>7}{:>7}  {:>7}{:>8}{:>8}",
        "", "", "p50", "p90", "p99", "p50", "p90", "p99", "p50", "p90", "p99"
    )
}

/// The figures of a load in one line.
struct Row<'a>(&'a Point);

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let point = self.0;
        write!(f, "{:>9.1}{:>8.2}", point.output_tok_s, point.requests_s)?;
        let [p50, p90, p99] = percentiles(point.first_token_ms.as_ref()).map(|ms| shown(ms, 0));
        write!(f, "  {p50:>7}{p90:>8}{p99:>8}")?;
        let [p50, p90, p99] = percentiles(point.inter_token_ms.as_ref()).map(|ms| shown(ms, 1));
        write!(f, "  {p50:>6}{p90:>7}{p99:>7}")?;
        let [p50, p90, p99] = percentiles(point.total_ms.as_ref()).map(|ms| shown(ms, 0));
        write!(f, "  {p50:>7}{p90:>8}{p99:>8}")?;
        write!(f, "  {:>7.1}{:>7}{:>7.1}%", point.prompt_tokens, point.failed(), 100.0 * point.own_cpu)
    }
}

/// The three percentiles that are shown; `None` where nothing was measured.
pub fn percentiles(spread: Option<&Spread>) -> [Option<f64>; 3] {
    spread.map_or([None; 3], |spread| [spread.p50, spread.p90, spread.p99].map(Some))
}

/// A number with so many decimals, or a dash.
pub fn shown(number: Option<f64>, decimals: usize) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.decimals$}"))
}
