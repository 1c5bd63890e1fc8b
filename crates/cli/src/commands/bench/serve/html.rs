//! Runs as a page that needs nothing but itself: tables, and plots drawn as SVG.

use std::fmt::Write;

use super::summary::{Load, Point, Run, Spread};
use super::table::{asked, percentiles, shown};
use crate::plot::{COLOURS, Panel, Side, canvas, close, escaped};

const HEAD: &str = r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>ropeway bench serve</title>
<style>
body { font-family: sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0; font-size: 14px }
th, td { padding: 0.25em 0.7em; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left }
svg { width: 100%; height: auto; margin: 1em 0; border: 1px solid #eee }
</style></head><body>
"#;

/// One of the times measured.
type Of = fn(&Point) -> Option<&Spread>;

/// One of the figures of a load.
type Value = fn(&Point) -> f64;

/// A curve: its name and where its points are.
struct Curve<'a> {
    name: String,
    spread: &'a Spread,
}

/// The whole page.
pub fn page(runs: &[Run]) -> String {
    let mut page = HEAD.to_owned();
    let labels: Vec<_> = runs.iter().map(|run| escaped(&run.label)).collect();
    let _ = writeln!(page, "<h1>{}</h1>", labels.join(" beside "));
    for run in runs {
        section(&mut page, run);
    }
    if runs.iter().any(|run| run.points.len() > 1) {
        page.push_str(&over_load(runs));
    }
    for (title, of) in TIMES {
        page.push_str(&distributions(title, runs, of));
    }
    page.push_str("</body></html>\n");
    page
}

/// What distributions are drawn of.
const TIMES: [(&str, Of); 3] = [
    ("time to the first token", |point| point.first_token_ms.as_ref()),
    ("time between tokens", |point| point.inter_token_ms.as_ref()),
    ("time to the end", |point| point.total_ms.as_ref()),
];

fn section(page: &mut String, run: &Run) {
    let model = escaped(&run.model);
    let _ = writeln!(
        page,
        "<h2>{}</h2>\n<p>{model} at {}, {}</p>",
        escaped(&run.label),
        escaped(&run.url),
        asked(run)
    );
    if !run.points.is_empty() {
        page.push_str("<table><tr><th>load</th><th>tok/s</th><th>requests/s</th>");
        page.push_str("<th>first token p50 / p90 / p99 ms</th><th>between tokens</th><th>total</th>");
        page.push_str("<th>errors</th><th>own CPU</th></tr>\n");
        for point in &run.points {
            row(page, point);
        }
        page.push_str("</table>\n");
    }
    if let Some(trio) = &run.trio {
        let _ = writeln!(page, "<pre>{}</pre>", escaped(&trio.to_string()));
    }
}

fn row(page: &mut String, point: &Point) {
    let _ = write!(
        page,
        "<tr><td>{}</td><td>{:.1}</td><td>{:.2}</td>",
        point.load, point.output_tok_s, point.requests_s
    );
    for (_, of) in TIMES {
        let [p50, p90, p99] = percentiles(of(point)).map(|ms| shown(ms, 1));
        let _ = write!(page, "<td>{p50} / {p90} / {p99}</td>");
    }
    let kinds: Vec<_> =
        point.errors.iter().map(|(kind, failed)| format!("{} {}", failed.count, escaped(kind))).collect();
    let errors = if kinds.is_empty() { "0".to_owned() } else { kinds.join(", ") };
    let _ = writeln!(page, "<td>{errors}</td><td>{:.1} %</td></tr>", 100.0 * point.own_cpu);
}

/// Throughput and the first token over the load, a line per run.
fn over_load(runs: &[Run]) -> String {
    let points = || runs.iter().flat_map(|run| &run.points);
    let most = points().map(|point| point.load.amount()).fold(1.0, f64::max);
    let unit = match points().next().map(|point| point.load) {
        Some(Load::Rate(_)) => "requests a second",
        _ => "requests at once",
    };
    let mut svg = canvas("over load");
    let panels: [(Side, &str, Value); 2] = [
        (Side::Left, "output tokens a second", |point| point.output_tok_s),
        (Side::Right, "first token p50, ms", |point| {
            point.first_token_ms.as_ref().map_or(0.0, |spread| spread.p50)
        }),
    ];
    for (side, title, of) in panels {
        let top = points().map(of).fold(0.0, f64::max);
        let panel = Panel::new(side, [0.0, most], if top > 0.0 { 1.1 * top } else { 1.0 });
        panel.quarters_y(&mut svg);
        let mut loads: Vec<f64> = points().map(|point| point.load.amount()).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        for load in loads {
            panel.tick_x(&mut svg, load, &load.to_string());
        }
        for (run, colour) in runs.iter().zip(COLOURS) {
            panel.line(&mut svg, colour, run.points.iter().map(|point| (point.load.amount(), of(point))));
        }
        panel.frame(&mut svg, title, unit);
    }
    close(&mut svg, runs.iter().map(|run| run.label.as_str()));
    svg
}

/// The share of requests within a time: for one run at every load, for several at the highest they have in common.
fn distributions(title: &str, runs: &[Run], of: Of) -> String {
    let curves = curves(runs, of);
    let Some(longest) = curves.iter().map(|curve| curve.spread.max).max_by(f64::total_cmp) else {
        return String::new();
    };
    let shortest = curves.iter().map(|curve| curve.spread.quantiles[0]).fold(longest, f64::min);
    let log = |ms: f64| ms.max(0.01).log10();
    let [left, right] = [log(shortest).floor(), log(longest).ceil()];
    let mut svg = canvas(title);
    let panels = [
        (Side::Left, [left, right.max(left + 1.0)], "share, logarithmic time"),
        (Side::Right, [0.0, longest.max(0.01)], "share, linear time"),
    ];
    for (side, ends, name) in panels {
        let panel = Panel::new(side, ends, 1.0);
        panel.percents_y(&mut svg);
        let logarithmic = matches!(side, Side::Left);
        if logarithmic {
            panel.powers_x(&mut svg, "ms");
        } else {
            for quarter in 0..=4 {
                let ms = longest * f64::from(quarter) / 4.0;
                panel.tick_x(&mut svg, ms, &format!("{ms:.0} ms"));
            }
        }
        for (curve, colour) in curves.iter().zip(COLOURS) {
            let last = (curve.spread.quantiles.len() - 1).max(1) as f64;
            let place = |ms: f64| if logarithmic { log(ms) } else { ms };
            let points = curve.spread.quantiles.iter().enumerate();
            panel.line(&mut svg, colour, points.map(|(index, ms)| (place(*ms), index as f64 / last)));
        }
        panel.frame(&mut svg, name, "within");
    }
    close(&mut svg, curves.iter().map(|curve| curve.name.as_str()));
    svg
}

fn curves(runs: &[Run], of: Of) -> Vec<Curve<'_>> {
    if let [run] = runs {
        let curve = |point| {
            let point: &Point = point;
            Some(Curve { name: point.load.to_string(), spread: of(point)? })
        };
        return run.points.iter().filter_map(curve).filter(drawable).collect();
    }
    let Some(load) = common_loads(runs).last().copied() else { return Vec::new() };
    let curve = |run| {
        let run: &Run = run;
        let point = run.points.iter().find(|point| point.load == load)?;
        Some(Curve { name: format!("{}, {load}", run.label), spread: of(point)? })
    };
    runs.iter().filter_map(curve).filter(drawable).collect()
}

/// A file may hold anything.
fn drawable(curve: &Curve<'_>) -> bool {
    !curve.spread.quantiles.is_empty()
}

/// Loads that all runs have, in the order of the first.
pub fn common_loads(runs: &[Run]) -> Vec<Load> {
    let Some((first, others)) = runs.split_first() else { return Vec::new() };
    let everywhere =
        |load: &Load| others.iter().all(|run| run.points.iter().any(|point| point.load == *load));
    first.points.iter().map(|point| point.load).filter(everywhere).collect()
}
