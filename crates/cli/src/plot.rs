//! Plots as SVG written by hand: a canvas with up to two panels side by side, a colour per line, a legend below.

use std::fmt::Write;

pub const WIDTH: f64 = 960.0;
pub const HEIGHT: f64 = 380.0;

/// Told apart by people who see few colours, too (after Okabe and Ito).
pub const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"];

/// Where a panel is on the canvas.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    Left,
    Right,
}

/// A rectangle to draw in, and what its edges stand for.
pub struct Panel {
    left: f64,
    /// Values at the left and right, already as they are spaced (logarithms on a logarithmic axis).
    x: [f64; 2],
    /// Value at the top; the bottom is 0.
    top: f64,
}

impl Panel {
    const ABOVE: f64 = 60.0;
    const TALL: f64 = 250.0;
    const WIDE: f64 = 400.0;

    /// A panel for values from `x[0]` to `x[1]` and from 0 to `top`.
    pub fn new(side: Side, x: [f64; 2], top: f64) -> Panel {
        let left = match side {
            Side::Left => 50.0,
            Side::Right => 530.0,
        };
        Panel { left, x, top }
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let across = ((x - self.x[0]) / (self.x[1] - self.x[0])).clamp(0.0, 1.0);
        let up = (y / self.top).clamp(0.0, 1.0);
        (self.left + across * Self::WIDE, Self::ABOVE + (1.0 - up) * Self::TALL)
    }

    /// The frame, the title above it and what the horizontal axis counts.
    pub fn frame(&self, svg: &mut String, title: &str, below: &str) {
        let (left, width, above, tall) = (self.left, Self::WIDE, Self::ABOVE, Self::TALL);
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

    /// A line upwards from the horizontal axis.
    pub fn tick_x(&self, svg: &mut String, x: f64, label: &str) {
        let (x, bottom) = self.at(x, 0.0);
        let _ = writeln!(
            svg,
            r##"<line x1="{x:.1}" y1="{}" x2="{x:.1}" y2="{bottom}" stroke="#ddd"/>
<text x="{x:.1}" y="{}" text-anchor="middle">{label}</text>"##,
            Self::ABOVE,
            bottom + 16.0,
        );
    }

    /// A line across from the vertical axis.
    pub fn tick_y(&self, svg: &mut String, y: f64, label: &str) {
        let (left, y) = self.at(self.x[0], y);
        let _ = writeln!(
            svg,
            r##"<line x1="{left}" y1="{y:.1}" x2="{}" y2="{y:.1}" stroke="#ddd"/>
<text x="{}" y="{:.1}" text-anchor="end">{label}</text>"##,
            left + Self::WIDE,
            left - 6.0,
            y + 4.0,
        );
    }

    /// The vertical axis in quarters.
    pub fn quarters_y(&self, svg: &mut String) {
        for quarter in 0..=4 {
            let value = self.top * f64::from(quarter) / 4.0;
            self.tick_y(svg, value, &format!("{value:.0}"));
        }
    }

    /// The vertical axis as shares of all, for a panel whose top is 1.
    pub fn percents_y(&self, svg: &mut String) {
        for percent in [0, 25, 50, 75, 100] {
            self.tick_y(svg, f64::from(percent) / 100.0, &format!("{percent} %"));
        }
    }

    /// The horizontal axis in powers of ten, for a panel of logarithms.
    pub fn powers_x(&self, svg: &mut String, unit: &str) {
        let mut power = self.x[0].ceil() as i32;
        while f64::from(power) <= self.x[1] {
            self.tick_x(svg, f64::from(power), &format!("{} {unit}", 10f64.powi(power)));
            power += 1;
        }
    }

    pub fn line(&self, svg: &mut String, colour: &str, points: impl Iterator<Item = (f64, f64)>) {
        let _ = write!(svg, r#"<polyline fill="none" stroke="{colour}" stroke-width="1.8" points=""#);
        for (x, y) in points {
            let (x, y) = self.at(x, y);
            let _ = write!(svg, "{x:.1},{y:.1} ");
        }
        svg.push_str("\"/>\n");
    }
}

/// An empty canvas with a title; ends with [`close`].
pub fn canvas(title: &str) -> String {
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>
<text x="50" y="24" font-size="16">{}</text>
"##,
        escaped(title)
    )
}

/// A name for every colour, in their order, and the end of the plot.
pub fn close<'a>(svg: &mut String, names: impl Iterator<Item = &'a str>) {
    let mut x = 50.0;
    for (name, colour) in names.zip(COLOURS) {
        let y = HEIGHT - 12.0;
        let _ = writeln!(
            svg,
            r#"<line x1="{x}" y1="{}" x2="{}" y2="{}" stroke="{colour}" stroke-width="3"/><text x="{}" y="{y}">{}</text>"#,
            y - 4.0,
            x + 24.0,
            y - 4.0,
            x + 30.0,
            escaped(name),
        );
        x += 110f64.max(48.0 + 7.0 * name.chars().count() as f64);
    }
    svg.push_str("</svg>\n");
}

/// Text as it may stand in SVG and HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_calls_itself_can_not_break_out_of_a_plot() {
        let mut svg = canvas("<script>");
        close(&mut svg, ["a & \"b\""].into_iter());
        assert!(!svg.contains("<script>") && svg.contains("a &amp; &quot;b&quot;"), "{svg}");
    }

    #[test]
    fn values_beyond_the_edges_stay_inside_the_frame() {
        let panel = Panel::new(Side::Left, [0.0, 10.0], 5.0);
        assert_eq!(panel.at(100.0, 100.0), (450.0, 60.0));
        assert_eq!(panel.at(-1.0, -1.0), (50.0, 310.0));
    }
}
