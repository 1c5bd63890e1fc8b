//! The plot of a simulation, as an SVG written by hand: two panels, a line per policy.
//!
//! ```text
//! | first token: share of requests  | waiting requests      |
//! | that had it within ... seconds  | over simulated time   |
//! ```

use std::fmt::Write;

use super::Outcome;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 380.0;

/// Told apart by people who see few colours, too (after Okabe and Ito).
const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];

/// A rectangle to draw in, and what its edges stand for.
struct Panel {
    left: f64,
    width: f64,
    /// Values at the left and right, already as they are spaced (logarithms on a logarithmic axis).
    x: [f64; 2],
    /// Value at the top; the bottom is 0.
    top: f64,
}

impl Panel {
    const ABOVE: f64 = 60.0;
    const TALL: f64 = 250.0;

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let across = ((x - self.x[0]) / (self.x[1] - self.x[0])).clamp(0.0, 1.0);
        let up = (y / self.top).clamp(0.0, 1.0);
        (self.left + across * self.width, Self::ABOVE + (1.0 - up) * Self::TALL)
    }

    fn frame(&self, svg: &mut String, title: &str, below: &str) {
        let (left, width, above, tall) = (self.left, self.width, Self::ABOVE, Self::TALL);
        let middle = left + width / 2.0;
        let _ = writeln!(
            svg,
            r##"<rect x="{left}" y="{above}" width="{width}" height="{tall}" fill="none" stroke="#888"/>
<text x="{left}" y="{}" font-weight="bold">{title}</text>
<text x="{middle}" y="{}" text-anchor="middle">{below}</text>"##,
            above - 10.0,
            above + tall + 38.0,
        );
    }

    fn tick_x(&self, svg: &mut String, x: f64, label: &str) {
        let (x, bottom) = self.at(x, 0.0);
        let _ = writeln!(
            svg,
            r##"<line x1="{x:.1}" y1="{}" x2="{x:.1}" y2="{bottom}" stroke="#ddd"/>
<text x="{x:.1}" y="{}" text-anchor="middle">{label}</text>"##,
            Self::ABOVE,
            bottom + 16.0,
        );
    }

    fn tick_y(&self, svg: &mut String, y: f64, label: &str) {
        let (left, y) = self.at(self.x[0], y);
        let _ = writeln!(
            svg,
            r##"<line x1="{left}" y1="{y:.1}" x2="{}" y2="{y:.1}" stroke="#ddd"/>
<text x="{}" y="{:.1}" text-anchor="end">{label}</text>"##,
            left + self.width,
            left - 6.0,
            y + 4.0,
        );
    }

    fn line(&self, svg: &mut String, colour: &str, points: impl Iterator<Item = (f64, f64)>) {
        let _ = write!(svg, r#"<polyline fill="none" stroke="{colour}" stroke-width="1.8" points=""#);
        for (x, y) in points {
            let (x, y) = self.at(x, y);
            let _ = write!(svg, "{x:.1},{y:.1} ");
        }
        svg.push_str("\"/>\n");
    }
}

/// Draws the outcomes.
pub fn svg(title: &str, outcomes: &[Outcome]) -> String {
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>
<text x="50" y="24" font-size="16">{title}</text>
"##
    );
    first_tokens(&mut svg, outcomes);
    queue(&mut svg, outcomes);
    legend(&mut svg, outcomes);
    svg.push_str("</svg>\n");
    svg
}

fn first_tokens(svg: &mut String, outcomes: &[Outcome]) {
    let all: Vec<_> = outcomes.iter().map(|outcome| outcome.report.everyone().first_token).collect();
    let longest = all.iter().map(|times| times.longest().as_secs_f64()).fold(1.0, f64::max);
    let panel = Panel { left: 50.0, width: 400.0, x: [-2.0, longest.log10().ceil()], top: 1.0 };
    let mut power = -2;
    while f64::from(power) <= panel.x[1] {
        panel.tick_x(svg, f64::from(power), &format!("{} s", 10f64.powi(power)));
        power += 1;
    }
    for percent in [0, 25, 50, 75, 100] {
        panel.tick_y(svg, f64::from(percent) / 100.0, &format!("{percent} %"));
    }
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
    let panel = Panel { left: 530.0, width: 400.0, x: [0.0, end], top: most as f64 };
    for quarter in 0..=4 {
        let (seconds, waiting) = (end * f64::from(quarter) / 4.0, most as f64 * f64::from(quarter) / 4.0);
        panel.tick_x(svg, seconds, &format!("{seconds:.0}"));
        panel.tick_y(svg, waiting, &format!("{waiting:.0}"));
    }
    for (outcome, colour) in outcomes.iter().zip(COLOURS) {
        let points = outcome.report.timeline.points().map(|(at, [waiting, _])| (at, waiting as f64));
        panel.line(svg, colour, points);
    }
    panel.frame(svg, "requests waiting", "simulated seconds");
}

fn legend(svg: &mut String, outcomes: &[Outcome]) {
    for (index, (outcome, colour)) in outcomes.iter().zip(COLOURS).enumerate() {
        let (x, y) = (50.0 + 110.0 * index as f64, HEIGHT - 12.0);
        let _ = writeln!(
            svg,
            r#"<line x1="{x}" y1="{}" x2="{}" y2="{}" stroke="{colour}" stroke-width="3"/><text x="{}" y="{y}">{}</text>"#,
            y - 4.0,
            x + 24.0,
            y - 4.0,
            x + 30.0,
            outcome.policy.name(),
        );
    }
}
