//! What is asked of a server, and how often.

use std::io::{IsTerminal, stderr};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use ropeway_testkit::rng::Rng;

use super::ask::{Ask, Endpoint};
use super::client::Fault;
use super::length::Length;
use super::load::{Round, Sender, arrivals};
use super::prompts::Prompts;
use super::recorded::TraceArgs;
use super::summary::{Load, Point};
use crate::commands::bench::trio::Trio;

/// Fewest requests at a load, unless told.
const FEW: usize = 8;

/// Requests at a rate, unless told.
const AT_A_RATE: usize = 100;

/// Measurements of each load, unless told.
const REPEATS: u32 = 3;

/// What is asked of the server.
#[derive(Clone, Debug, Args)]
pub struct Work {
    /// Which API
    #[arg(long, value_enum, default_value = "completions")]
    pub endpoint: Endpoint,
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
    pub prompt: Length,
    /// Tokens of an answer
    #[arg(long, value_name = "LENGTH", default_value = "64")]
    pub output: Length,
    /// Tokens that all prompts begin with, besides their own
    #[arg(long, value_name = "TOKENS", default_value_t = 0)]
    pub shared_prefix: usize,
    /// Requests of one measurement (default: twice as many as are open, at
    /// least 8; 100 at a rate; all of a trace)
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub requests: Option<u32>,
    /// Requests before anything is measured
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    warm_up: usize,
    /// Measurements of each load (default: 3, one of a trace)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,
    /// The same seed gives the same lengths and times of arrival
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Let the model end its answers (else servers are asked to ignore the end)
    #[arg(long)]
    pub stop_at_end: bool,
    #[arg(long, default_value_t = 0.0)]
    pub temperature: f32,
    /// Seconds after which a request has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    #[command(flatten)]
    pub trace: TraceArgs,
}

impl Work {
    /// Requests before anything is measured.
    pub async fn warm_up(&self, sender: &Sender, prompts: &mut Prompts<'_>) -> Result<(), Fault> {
        sender.bar.set_message("warm-up");
        let mut rng = Rng::new(self.seed).fork(u64::MAX);
        let asks = self.asks(prompts, &mut rng, self.warm_up).await?;
        sender.at_once(asks, FEW).await;
        Ok(())
    }

    /// Measures every load, or the trio.
    pub async fn measure(
        &self,
        sender: &Sender,
        prompts: &mut Prompts<'_>,
    ) -> Result<(Vec<Point>, Option<Trio>), Fault> {
        let mut rng = Rng::new(self.seed);
        if !self.trio.is_empty() {
            sender.bar.set_message("trio");
            let lengths: Vec<usize> = self.trio.iter().map(|tokens| *tokens as usize).collect();
            let new = self.output.draw(&mut rng);
            let trio = super::trio::measure(sender, prompts, &lengths, new, self.repeats() as usize).await?;
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
        for _ in 0..self.repeats() {
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
                sender.as_they_come(times.into_iter().zip(asks)).await
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

    /// Measurements of each load.
    pub fn repeats(&self) -> u32 {
        let usual = if self.trace.is_given() { 1 } else { REPEATS };
        self.repeat.unwrap_or(usual)
    }

    /// Progress over all requests; those of a trace are given.
    pub fn bar(&self, recorded: Option<usize>) -> ProgressBar {
        if !stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let requests: usize = match recorded {
            Some(recorded) => recorded,
            None if self.trio.is_empty() => self.loads().into_iter().map(|load| self.count(load)).sum(),
            None => 2 * self.trio.len(),
        };
        let all = self.warm_up + requests * self.repeats() as usize;
        let style =
            ProgressStyle::with_template("{msg:12} [{bar:30}] {human_pos}/{human_len} {elapsed} {eta}");
        ProgressBar::new(all as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    }
}

/// Requests a second.
pub fn rate(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().unwrap_or(f64::NAN);
    if number > 0.0 && number <= 1e6 { Ok(number) } else { Err("requests a second, above 0".into()) }
}
