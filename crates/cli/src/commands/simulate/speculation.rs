//! What drafts did to a simulated workload, against the same requests without.

use std::io::{self, Write};

use ropeway_testkit::simulate::Report;
use serde_json::{Value, json};

use super::Outcome;
use crate::output::Output;

/// What was gained.
struct Gain {
    /// Drafted tokens that were right, as a share.
    acceptance: f64,
    /// Tokens of a draft.
    mean_depth: f64,
    /// How many times as many tokens a second of the machine gave.
    speed_up: f64,
    /// How many times sooner the median answer was complete.
    sooner: f64,
}

impl Gain {
    fn new(report: &Report, plain: &Report) -> Self {
        let ratio = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let median = |report: &Report| report.everyone().total.quantile(0.5).max(1e-9);
        Self {
            acceptance: ratio(report.accepted, report.drafted),
            mean_depth: ratio(report.drafted, report.drafts),
            speed_up: report.tokens_per_busy_second() / plain.tokens_per_busy_second().max(1e-9),
            sooner: median(plain) / median(report),
        }
    }
}

/// A line for people; nothing where nothing could be drafted.
pub fn print(output: &mut Output, Outcome { report, plain, .. }: &Outcome) -> io::Result<()> {
    let Some(plain) = plain else { return Ok(()) };
    let Gain { acceptance, mean_depth, speed_up, sooner } = Gain::new(report, plain);
    writeln!(
        output,
        "  drafted {} ({mean_depth:.1} a draft), accepted {} ({:.0} %), {:.2} tokens a step; against none: {speed_up:.2}x \
         tokens per busy second, answers {sooner:.2}x sooner (p50)",
        report.drafted,
        report.accepted,
        100.0 * acceptance,
        report.tokens_per_step(),
    )
}

/// The same for programs; null where nothing could be drafted.
pub fn json(Outcome { report, plain, .. }: &Outcome) -> Value {
    let Some(plain) = plain else { return Value::Null };
    let Gain { acceptance, mean_depth, speed_up, sooner } = Gain::new(report, plain);
    json!({
        "drafts": report.drafts,
        "drafted_tokens": report.drafted,
        "accepted_tokens": report.accepted,
        "acceptance": acceptance,
        "mean_depth": mean_depth,
        "tokens_per_step": report.tokens_per_step(),
        "speed_up": speed_up,
        "total_p50_speed_up": sooner,
    })
}
