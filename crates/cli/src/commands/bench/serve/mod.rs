//! `ropeway bench serve`: load on any server that speaks OpenAI's API, and what its users would have felt.
//!
//! ```text
//! target.rs    where the server is          client.rs, sse.rs   HTTP and streams
//! length.rs    how long prompts are         words.rs, prompts.rs   texts with so many tokens
//! ask.rs       one request                  load.rs   many: closed loop, open loop
//! recorded.rs  the requests of a trace      work.rs   what is asked, and how often
//! trio.rs      short prompts beside a long one
//! summary.rs   figures of a run             table.rs, html.rs   for people
//! cpu.rs       what measuring costs
//! ```
//! Peers are measured by the same tool, so that the same things are counted. It must never be the bottleneck: one
//! thread, and it says how busy that was.

mod ask;
mod client;
mod cpu;
pub mod html;
mod length;
mod load;
mod prompts;
mod recorded;
mod sse;
pub mod summary;
pub mod table;
mod target;
mod trio;
mod words;
mod work;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::sync::watch;

use crate::descriptors::raise_limit;
use crate::failure::Failure;
use crate::output::{Output, tell};
use ask::Manner;
use client::{Client, Fault};
use load::Sender;
use prompts::Prompts;
use summary::Run;
use target::Target;
use work::Work;

/// Share of one processor from which on the load generator may be what is measured.
const BUSY: f64 = 0.7;

const HELP: &str = "\
Examples:
  ropeway bench serve                               the server on port 8000
  ropeway bench serve --url http://127.0.0.1:8080 --label llama.cpp --json b.json
  ropeway bench serve --rate 2,4,8 --prompt lognormal:200 --output uniform:16-256
  ropeway bench serve --trio 85,113,7600            short prompts beside a long one
  ropeway bench serve --shared-prefix 1000          what a prefix cache is worth
  ropeway bench serve --trace conversation.jsonl --speed 0.1 --requests 500
  ropeway bench compare a.json b.json --report both.html

Every prompt is new, and none is remembered from an earlier run. Time counts
from when a request is due, so that waiting for a slow server is not left out.
Rates are medians over the repeats; times are those of all requests.";

/// Put load on any OpenAI-compatible server and measure it
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Serve {
    /// The server's address
    #[arg(long, default_value = "http://127.0.0.1:8000")]
    url: Target,
    /// The model to ask for (default: the first that the server lists)
    #[arg(long)]
    model: Option<String>,
    /// Sent as a bearer token
    #[arg(long, value_name = "KEY", env = "OPENAI_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// What the run is called in comparisons (default: the address)
    #[arg(long)]
    label: Option<String>,
    /// Write everything to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with plots to this file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    #[command(flatten)]
    work: Work,
}

impl Serve {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        raise_limit();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let run = runtime.block_on(self.measure())?;
        write!(output, "{}", table::Table(&run))?;
        output.flush()?;
        if let Some(path) = &self.json {
            std::fs::write(path, serde_json::to_string_pretty(&run).map_err(std::io::Error::from)?)?;
        }
        if let Some(path) = &self.report {
            std::fs::write(path, html::page(std::slice::from_ref(&run)))?;
        }
        judge(&run)
    }

    async fn measure(&self) -> Result<Run, Failure> {
        let deadline = Duration::from_secs(self.work.timeout);
        let client = Client::new(self.url.clone(), self.api_key.as_deref(), deadline)
            .map_err(|error| Failure::new(error, "check --url and --api-key"))?;
        let Served { model, context } = self.served(&client).await?;
        let manner = Manner {
            endpoint: self.work.endpoint,
            model: model.clone(),
            ignore_eos: !self.work.stop_at_end,
            temperature: self.work.temperature,
        };
        let (client, manner) = (Arc::new(client), Arc::new(manner));
        let unfit = |fault: Fault| {
            let hint = format!("see whether `curl {}/v1/models` lists the model", self.url);
            Failure::new(fault, hint)
        };
        let mut prompts = Prompts::learn(&client, &manner, self.work.shared_prefix).await.map_err(unfit)?;
        let most = self.work.requests.map(|count| count as usize);
        let recording = self.work.trace.open(most, context, &prompts.texts())?;
        let bar = self.work.bar(recording.as_ref().map(|recording| recording.about.requests));
        let sender =
            Sender { client: Arc::clone(&client), manner: Arc::clone(&manner), stop: on_interrupt(), bar };
        self.work.warm_up(&sender, &mut prompts).await.map_err(unfit)?;
        let found = match &recording {
            Some(recording) => {
                Ok((recording.measure(&sender, &mut prompts, self.work.repeats()).await, None))
            }
            None => self.work.measure(&sender, &mut prompts).await,
        };
        sender.bar.finish_and_clear();
        let (points, trio) = found.map_err(unfit)?;
        Ok(Run {
            ropeway: env!("CARGO_PKG_VERSION").into(),
            label: self.label.clone().unwrap_or_else(|| self.url.to_string()),
            url: self.url.to_string(),
            model,
            endpoint: self.work.endpoint.name().into(),
            prompt: self.work.prompt.to_string(),
            output: self.work.output.to_string(),
            shared_prefix: self.work.shared_prefix,
            exact_prompts: prompts.are_exact() && (recording.is_none() || prompts.texts().are_exact()),
            trace: recording.map(|recording| recording.about),
            seed: self.work.seed,
            interrupted: sender.stopped(),
            points,
            trio,
        })
    }

    /// What is asked for and how long its context is, as far as the server says.
    async fn served(&self, client: &Client) -> Result<Served, Failure> {
        let listed = client.get("/v1/models").await;
        let context_of = |entry: &Value| entry["max_model_len"].as_u64().map(|tokens| tokens as usize);
        if let Some(model) = &self.model {
            let models = listed.unwrap_or_default()["data"].as_array().cloned().unwrap_or_default();
            let entry = models.iter().find(|entry| entry["id"].as_str() == Some(model));
            return Ok(Served { model: model.clone(), context: entry.and_then(context_of) });
        }
        let listed = listed.map_err(|fault| {
            let hint = match &fault {
                Fault::Connect(_) => "start a server (`ropeway serve`), or say where it is with --url",
                _ => "name the model with --model; --api-key gives a key",
            };
            Failure::new(format!("{} did not list its models: {fault}", self.url), hint)
        })?;
        let first = &listed["data"][0];
        match first["id"].as_str() {
            Some(model) => Ok(Served { model: model.to_owned(), context: context_of(first) }),
            None => Err(Failure::new(
                format!("{} lists no model", self.url),
                "name one with --model, or wait until it is loaded",
            )),
        }
    }
}

/// The model that is asked.
struct Served {
    model: String,
    /// Tokens of prompt and answer together, where the server says it.
    context: Option<usize>,
}

/// Becomes true with the first Ctrl-C; the second ends the program.
fn on_interrupt() -> watch::Receiver<bool> {
    let (set, flag) = watch::channel(false);
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            let _ = set.send(true);
            tell("stopping; what was measured so far follows");
        }
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(130);
        }
        // Without Ctrl-C the flag has to stay as it is.
        std::future::pending::<()>().await;
    });
    flag
}

/// Says what casts doubt on a run; one without any answer has failed.
fn judge(run: &Run) -> Result<(), Failure> {
    let busiest = run.points.iter().map(|point| point.own_cpu).fold(0.0, f64::max);
    if busiest > BUSY {
        tell(&format!(
            "warning: measuring took {:.0} % of a processor; the figures may be those of this program",
            100.0 * busiest
        ));
    }
    if !run.exact_prompts {
        tell("note: the server does not let prompts be counted exactly; see `prompt` for their mean");
    }
    let answered = run.points.iter().any(|point| point.completed > 0) || run.trio.is_some();
    if answered || run.interrupted {
        return Ok(());
    }
    let told = run.points.iter().flat_map(|point| point.errors.values()).next();
    let why = told.map_or("nothing was sent", |failed| failed.example.as_str());
    Err(Failure::new(format!("no request was answered: {why}"), "try one request with curl"))
}
