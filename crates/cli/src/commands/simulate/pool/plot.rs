//! The plot of a pool: a line per way to choose upstreams.
//!
//! ```text
//! | first token: share of requests  | answer: share of requests   |
//! | that had it within ... seconds  | that had it within ...      |
//! ```

use ropeway_testkit::simulate::Times;

use super::scenario::{Run, Scenario};
use crate::plot::{COLOURS, Panel, Side, canvas, close};

/// Draws the runs that differ by routing, or all if there are none.
pub fn svg(title: &str, runs: &[Run]) -> String {
    let by_routing: Vec<_> = runs.iter().filter(|run| run.scenario == Some(Scenario::Routing)).collect();
    let drawn = if by_routing.is_empty() { runs.iter().collect() } else { by_routing };
    let seen: Vec<_> = drawn.iter().map(|run| run.outcome.everyone()).collect();
    let mut svg = canvas(title);
    let first: Vec<_> = seen.iter().map(|seen| &seen.first_token).collect();
    let total: Vec<_> = seen.iter().map(|seen| &seen.total).collect();
    cumulative(&mut svg, Side::Left, "requests that had their first token", &first);
    cumulative(&mut svg, Side::Right, "requests that had their answer", &total);
    close(&mut svg, drawn.iter().map(|run| run.label.as_str()));
    svg
}

fn cumulative(svg: &mut String, side: Side, title: &str, all: &[&Times]) {
    let longest = all.iter().map(|times| times.longest().as_secs_f64()).fold(1.0, f64::max);
    let panel = Panel::new(side, [-2.0, longest.log10().ceil()], 1.0);
    panel.powers_x(svg, "s");
    panel.percents_y(svg);
    for (times, colour) in all.iter().zip(COLOURS) {
        let points = times.cumulative().map(|(seconds, share)| (seconds.max(0.01).log10(), share));
        panel.line(svg, colour, std::iter::once((-2.0, 0.0)).chain(points));
    }
    panel.frame(svg, title, "within");
}
