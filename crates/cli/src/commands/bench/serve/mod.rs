//! `ropeway bench serve`: load on any server that speaks OpenAI's API, and what its users would have felt.
//!
//! ```text
//! target.rs    where the server is          client.rs, sse.rs   HTTP and streams
//! length.rs    how long prompts are         words.rs, prompts.rs   texts with so many tokens
//! ask.rs       one request                  load.rs   many: closed loop, open loop
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
mod sse;
pub mod summary;
pub mod table;
mod target;
mod trio;
mod words;

use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use ropeway_testkit::rng::Rng;
use tokio::sync::watch;

use crate::descriptors::raise_limit;
use crate::failure::Failure;
use crate::output::{Output, tell};
use ask::{Ask, Endpoint, Manner};
use client::{Client, Fault};
use length::Length;
use load::{Round, Sender, arrivals};
use prompts::Prompts;
use summary::{Load, Point, Run};
use target::Target;

/// Share of one processor from which on the load generator may be what is measured.
const BUSY: f64 = 0.7;

/// Fewest requests at a load, unless told.
const FEW: usize = 8;

/// Requests at a rate, unless told.
const AT_A_RATE: usize = 100;

const HELP: &str = "\
Examples:
  ropeway bench serve                               the server on port 8000
  ropeway bench serve --url http://127.0.0.1:8080 --label llama.cpp --json b.json
  ropeway bench serve --rate 2,4,8 --prompt lognormal:200 --output uniform:16-256
  ropeway bench serve --trio 85,113,7600            short prompts beside a long one
  ropeway bench serve --shared-prefix 1000          what a prefix cache is worth
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

/// What is asked of the server.
#[derive(Clone, Debug, Args)]
struct Work {
    /// Which API
    #[arg(long, value_enum, default_value = "completions")]
    endpoint: Endpoint,
    /// Requests open at all times, one measurement after another
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1,10,64",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: Vec<u32>,
    /// Instead, requests a second that come at independent times
    #[arg(long, value_name = "RATES", value_delimiter = ',', value_parser = rate, conflicts_with = "concurrency")]
    rate: Vec<f64>,
    /// Instead, prompts of these lengths, each alone and then all together
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', conflicts_with_all = ["concurrency", "rate"],
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    trio: Vec<u32>,
    /// Tokens of a prompt: 100, uniform:50-200 or lognormal:100
    #[arg(long, value_name = "LENGTH", default_value = "100")]
    prompt: Length,
    /// Tokens of an answer
    #[arg(long, value_name = "LENGTH", default_value = "64")]
    output: Length,
    /// Tokens that all prompts begin with, besides their own
    #[arg(long, value_name = "TOKENS", default_value_t = 0)]
    shared_prefix: usize,
    /// Requests of one measurement (default: twice as many as are open, at
    /// least 8; 100 at a rate)
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    requests: Option<u32>,
    /// Requests before anything is measured
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    warm_up: usize,
    /// Measurements of each load
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// The same seed gives the same lengths and times of arrival
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Let the model end its answers (else servers are asked to ignore the end)
    #[arg(long)]
    stop_at_end: bool,
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Seconds after which a request has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
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
        let model = self.model(&client).await?;
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
        let bar = self.work.bar();
        let sender =
            Sender { client: Arc::clone(&client), manner: Arc::clone(&manner), stop: on_interrupt(), bar };
        let found = self.work.measure(&sender, &mut prompts).await;
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
            seed: self.work.seed,
            exact_prompts: prompts.are_exact(),
            interrupted: sender.stopped(),
            points,
            trio,
        })
    }

    async fn model(&self, client: &Client) -> Result<String, Failure> {
        if let Some(model) = &self.model {
            return Ok(model.clone());
        }
        let listed = client.get("/v1/models").await.map_err(|fault| {
            let hint = match &fault {
                Fault::Connect(_) => "start a server (`ropeway serve`), or say where it is with --url",
                _ => "name the model with --model; --api-key gives a key",
            };
            Failure::new(format!("{} did not list its models: {fault}", self.url), hint)
        })?;
        let first = listed["data"][0]["id"].as_str().map(str::to_owned);
        first.ok_or_else(|| {
            Failure::new(
                format!("{} lists no model", self.url),
                "name one with --model, or wait until it is loaded",
            )
        })
    }
}

impl Work {
    async fn measure(
        &self,
        sender: &Sender,
        prompts: &mut Prompts<'_>,
    ) -> Result<(Vec<Point>, Option<crate::commands::bench::trio::Trio>), Fault> {
        let mut rng = Rng::new(self.seed);
        sender.bar.set_message("warm-up");
        let warm_up = self.asks(prompts, &mut rng.fork(u64::MAX), self.warm_up).await?;
        sender.at_once(warm_up, FEW).await;
        if !self.trio.is_empty() {
            sender.bar.set_message("trio");
            let lengths: Vec<usize> = self.trio.iter().map(|tokens| *tokens as usize).collect();
            let new = self.output.draw(&mut rng);
            let trio = trio::measure(sender, prompts, &lengths, new, self.repeat as usize).await?;
            return Ok((Vec::new(), trio));
        }
        Ok((self.points(sender, prompts, &mut rng).await?, None))
    }

    /// Every load in turn, as often as asked for: a slow minute of the machine hits all of them.
    async fn points(
        &self,
        sender: &Sender,
        prompts: &mut Prompts<'_>,
        rng: &mut Rng,
    ) -> Result<Vec<Point>, Fault> {
        let loads = self.loads();
        let mut rounds: Vec<Vec<Round>> = loads.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.repeat {
            for (load, rounds) in loads.iter().zip(&mut rounds) {
                if sender.stopped() {
                    break;
                }
                sender.bar.set_message(load.to_string());
                let round = self.round(sender, prompts, rng, *load).await?;
                rounds.extend(Some(round).filter(|round| !round.wall.is_zero()));
            }
        }
        let measured = loads.into_iter().zip(rounds).filter(|(_, rounds)| !rounds.is_empty());
        Ok(measured.map(|(load, rounds)| Point::of(load, &rounds)).collect())
    }

    async fn round(
        &self,
        sender: &Sender,
        prompts: &mut Prompts<'_>,
        rng: &mut Rng,
        load: Load,
    ) -> Result<Round, Fault> {
        let asks = self.asks(prompts, rng, self.count(load)).await?;
        Ok(match load {
            Load::Concurrency(users) => sender.at_once(asks, users).await,
            Load::Rate(rate) => {
                let times = arrivals(rng, rate, asks.len());
                sender.as_they_come(times.into_iter().zip(asks).collect()).await
            }
        })
    }

    async fn asks(&self, prompts: &mut Prompts<'_>, rng: &mut Rng, count: usize) -> Result<Vec<Ask>, Fault> {
        let mut asks = Vec::new();
        for _ in 0..count {
            asks.push(prompts.ask(self.prompt.draw(rng), self.output.draw(rng)).await?);
        }
        Ok(asks)
    }

    fn loads(&self) -> Vec<Load> {
        if self.rate.is_empty() {
            self.concurrency.iter().map(|users| Load::Concurrency(*users as usize)).collect()
        } else {
            self.rate.iter().copied().map(Load::Rate).collect()
        }
    }

    fn count(&self, load: Load) -> usize {
        let usual = match load {
            Load::Concurrency(users) => FEW.max(2 * users),
            Load::Rate(_) => AT_A_RATE,
        };
        self.requests.map_or(usual, |count| count as usize)
    }

    fn bar(&self) -> ProgressBar {
        if !stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let requests: usize = if self.trio.is_empty() {
            self.loads().into_iter().map(|load| self.count(load)).sum()
        } else {
            2 * self.trio.len()
        };
        let all = self.warm_up + requests * self.repeat as usize;
        let style =
            ProgressStyle::with_template("{msg:12} [{bar:30}] {human_pos}/{human_len} {elapsed} {eta}");
        ProgressBar::new(all as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    }
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

fn rate(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().unwrap_or(f64::NAN);
    if number > 0.0 && number <= 1e6 { Ok(number) } else { Err("requests a second, above 0".into()) }
}
