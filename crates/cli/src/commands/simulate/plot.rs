//! The plot of a simulation: two panels, a line per policy.
//!
//! ```text
//! | first token: share of requests  | waiting requests      |
//! | that had it within ... seconds  | over simulated time   |
//! ```

use super::Outcome;
use crate::plot::{COLOURS, Panel, Side, canvas, close};

/// Draws the outcomes.
pub fn svg(title: &str, outcomes: &[Outcome]) -> String {
    let mut svg = canvas(title);
    first_tokens(&mut svg, outcomes);
    queue(&mut svg, outcomes);
    close(&mut svg, outcomes.iter().map(|outcome| outcome.policy.name()));
    svg
}

fn first_tokens(svg: &mut String, outcomes: &[Outcome]) {
    let all: Vec<_> = outcomes.iter().map(|outcome| outcome.report.everyone().first_token).collect();
    let longest = all.iter().map(|times| times.longest().as_secs_f64()).fold(1.0, f64::max);
    let panel = Panel::new(Side::Left, [-2.0, longest.log10().ceil()], 1.0);
    panel.powers_x(svg, "s");
    panel.percents_y(svg);
    for (times, colour) in all.iter().zip(COLOURS) {
        let points = times.cumulative().map(|(seconds, share)| (seconds.max(0.01).log10(), share));
        panel.line(svg, colour, std::iter::once((-2.0, 0.0)).chain(points));
    }
    panel.frame(svg, "requests that had their first token", "within");
}

fn queue(svg: &mut String, outcomes: &[Outcome]) {
    let points = || outcomes.iter().flat_map(|outcome| outcome.report.timeline.points());
    let end = points().map(|(at, _)| at).fold(1.0, f64::max);
    let most = points().map(|(_, [waiting, _])| waiting).max().unwrap_or(0).max(4);
    let panel = Panel::new(Side::Right, [0.0, end], most as f64);
    for quarter in 0..=4 {
        let seconds = end * f64::from(quarter) / 4.0;
        panel.tick_x(svg, seconds, &format!("{seconds:.0}"));
    }
    panel.quarters_y(svg);
    for (outcome, colour) in outcomes.iter().zip(COLOURS) {
        let points = outcome.report.timeline.points().map(|(at, [waiting, _])| (at, waiting as f64));
        panel.line(svg, colour, points);
    }
    panel.frame(svg, "requests waiting", "simulated seconds");
}
