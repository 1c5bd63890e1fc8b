//! `ropeway upstreams`: the other servers that compute models for a running server, and how they do.

use std::io::{self, IsTerminal, Write, stdout};
use std::time::Duration;

use clap::Args;
use ropeway_pool::settings::UpstreamArg;
use ropeway_pool::upstream::Upstream;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;

/// Time between two looks with --watch.
const GLANCE: Duration = Duration::from_secs(1);

/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

const EXAMPLES: &str = "\
Examples:
  ropeway upstreams                         of the server on this machine
  ropeway upstreams --watch                 once a second
  ropeway upstreams --server https://front.example --key-env ROPEWAY_KEY

Columns: `now` is requests in flight and how many there may be, `first token`
the mean time from dispatch, `hits` the share of prompt tokens that the chosen
upstream should have had in its cache, `moved` streams that went on elsewhere
after it failed.";

/// List the other servers that compute models for a running server
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Upstreams {
    /// The running server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    server: String,
    /// The environment variable that holds a key which may read metrics
    #[arg(long, value_name = "VARIABLE")]
    key_env: Option<String>,
    /// Look again every second, until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Upstreams {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let server = self.upstream()?;
        loop {
            let told = runtime.block_on(server.get("/upstreams")).map_err(|error| {
                Failure::new(error, "start one with `ropeway serve --upstream URL`, or name it with --server")
            })?;
            if self.json {
                output.json(&told)?;
                return Ok(());
            }
            if self.watch && stdout().is_terminal() {
                write!(output, "{CLEAR}")?;
            }
            print(output, &told)?;
            output.flush()?;
            if !self.watch {
                return Ok(());
            }
            std::thread::sleep(GLANCE);
        }
    }

    fn upstream(&self) -> Result<Upstream, Failure> {
        let mut table = json!({ "url": self.server, "name": "server" });
        if let Some(variable) = &self.key_env {
            table["key-env"] = variable.as_str().into();
        }
        let settings = table.to_string().parse().and_then(UpstreamArg::resolve);
        let settings = settings.map_err(|error| Failure::new(error, "give it as http://HOST:PORT"))?;
        Upstream::new(settings).map_err(|error| Failure::new(error, "check --server"))
    }
}

fn print(output: &mut Output, told: &Value) -> io::Result<()> {
    let empty = Vec::new();
    let upstreams = told["upstreams"].as_array().unwrap_or(&empty);
    if upstreams.is_empty() {
        return writeln!(output, "the server has no upstreams: it computes its models itself");
    }
    let mut rows = vec![HEAD.map(str::to_owned)];
    let mut reasons = Vec::new();
    for upstream in upstreams {
        rows.extend(rows_of(upstream));
        if let Some(reason) = upstream["reason"].as_str() {
            reasons.push(reason);
        }
    }
    print_table(output, &rows)?;
    reasons.iter().try_for_each(|reason| writeln!(output, "{reason}"))?;
    for model in told["models"].as_array().unwrap_or(&empty) {
        let (name, waiting) = (text(&model["id"]), &model["waiting"]);
        writeln!(output, "{name}: {waiting} waiting")?;
    }
    Ok(())
}

const COLUMNS: usize = 11;

const HEAD: [&str; COLUMNS] = [
    "UPSTREAM",
    "STATE",
    "KIND",
    "MODEL",
    "NOW",
    "REQUESTS",
    "TOKENS",
    "FIRST TOKEN",
    "HITS",
    "ERRORS",
    "MOVED",
];

/// A row per model, or one without.
fn rows_of(upstream: &Value) -> Vec<[String; COLUMNS]> {
    let about = || [text(&upstream["name"]), text(&upstream["state"]), text(&upstream["kind"])];
    let models = upstream["models"].as_array().cloned().unwrap_or_default();
    if models.is_empty() {
        let mut row = std::array::from_fn(|_| String::new());
        row[..3].clone_from_slice(&about());
        return vec![row];
    }
    models.iter().map(|model| row(about(), model)).collect()
}

fn row([name, state, kind]: [String; 3], model: &Value) -> [String; COLUMNS] {
    let state = if state == "up" && model["up"] == false { "ejected".to_owned() } else { state };
    let first_token = model["mean_first_token_ms"].as_f64().map(|ms| format!("{ms:.1} ms"));
    [
        name,
        state,
        kind,
        text(&model["id"]),
        format!("{}/{}", model["in_flight"], model["limit"]),
        model["requests"].to_string(),
        model["tokens"].to_string(),
        first_token.unwrap_or_default(),
        share(&model["prefix_hit_tokens"], &model["prompt_tokens"]),
        model["errors"].to_string(),
        model["moved"].to_string(),
    ]
}

fn share(part: &Value, whole: &Value) -> String {
    match (part.as_f64(), whole.as_f64()) {
        (Some(part), Some(whole)) if whole > 0.0 => format!("{:.0} %", 100.0 * part / whole),
        _ => String::new(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn print_table(output: &mut Output, rows: &[[String; COLUMNS]]) -> io::Result<()> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    for row in rows {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(output, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}
