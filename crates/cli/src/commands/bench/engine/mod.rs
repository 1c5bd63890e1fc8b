//! `ropeway bench engine`: many requests at once, without server or text.
//!
//! ```text
//! lab.rs          the engine under test, made-up requests, streams with a watch on them
//! throughput.rs   N requests at once against one after another
//! trio.rs         two short prompts and a long one, each alone and together
//! itl.rs          a stream while a long prompt is read beside it
//! prefix.rs       the first token of a prompt whose beginning is cached
//! scheduler.rs    what deciding costs with many running and many more waiting
//! structured.rs   answers that follow a schema, against free ones
//! speculation/    the same answers with and without drafts
//! ```
//! Every prompt of every repetition has other tokens, so that the prefix cache helps only where it is what is
//! measured. Nothing else may run meanwhile, or the figures are worth nothing.

mod itl;
mod lab;
mod prefix;
mod scheduler;
mod speculation;
mod structured;
mod throughput;
mod trio;

use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ropeway_hub::catalogue::DEFAULT_CHAT_MODEL;
use ropeway_text::Tokenizer;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::engine_args::{EngineArgs, For, Started};
use crate::failure::Failure;
use crate::model_args::ModelArgs;
use crate::output::{Output, tell};
use lab::Lab;

/// Measure continuous batching
#[derive(Debug, Args)]
pub struct Engine {
    /// A name from `ropeway list`, or a path
    #[arg(value_name = "MODEL", default_value = DEFAULT_CHAT_MODEL)]
    name: String,
    /// What to measure (default: everything)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    scenario: Vec<Scenario>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write the latest steps to this file, one line each
    #[arg(long, value_name = "FILE")]
    steps: Option<PathBuf>,
    #[command(flatten)]
    sizes: Sizes,
    #[command(flatten)]
    sharing: EngineArgs,
    #[command(flatten)]
    options: ModelArgs,
}

/// How much is measured.
#[derive(Clone, Debug, Args)]
struct Sizes {
    /// Requests at once (throughput)
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1,5,10,18,32,64")]
    requests: Vec<usize>,
    /// Tokens of a short prompt (throughput, itl, scheduler, structured)
    #[arg(long, value_name = "TOKENS", default_value_t = 100)]
    prompt: usize,
    /// New tokens of each request (throughput, trio, structured)
    #[arg(long, value_name = "TOKENS", default_value_t = 64)]
    new: usize,
    /// Tokens of the long prompt (trio, itl)
    #[arg(long, value_name = "TOKENS", default_value_t = 7600)]
    long: usize,
    /// Streams beside the long prompt (itl)
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    streams: usize,
    /// Cached tokens at the beginning of a prompt (prefix)
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1024,2048,4096")]
    cached: Vec<usize>,
    /// Streams at once (speculation)
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1,4,10,64")]
    drafted: Vec<usize>,
    /// Workloads with this in their name (speculation; default: all)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    workload: Vec<String>,
    /// Measurements; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    Throughput,
    Trio,
    Itl,
    Prefix,
    Scheduler,
    Structured,
    Speculation,
}

/// What a scenario found, for people and as JSON.
struct Finding {
    text: String,
    json: Value,
}

impl Finding {
    fn of(report: &(impl Display + Serialize)) -> Result<Finding, Failure> {
        let json = serde_json::to_value(report).map_err(std::io::Error::from)?;
        Ok(Finding { text: report.to_string(), json })
    }
}

impl Scenario {
    fn measure(self, lab: &mut Lab, started: &Started, asked: &Engine) -> Result<Finding, Failure> {
        let sizes = &asked.sizes;
        match self {
            Scenario::Throughput => Finding::of(&throughput::measure(lab, sizes)?),
            Scenario::Trio => Finding::of(&trio::measure(lab, sizes)?),
            Scenario::Itl => Finding::of(&itl::measure(lab, sizes, asked.sharing.itl_target())?),
            Scenario::Prefix => Finding::of(&prefix::measure(lab, sizes)?),
            Scenario::Scheduler => Finding::of(&scheduler::measure(lab, sizes)?),
            Scenario::Structured => {
                let tokenizer = Tokenizer::from_checkpoint(&started.checkpoint)?;
                Finding::of(&structured::measure(lab, sizes, &tokenizer, started.machine.threads().most())?)
            }
            Scenario::Speculation => {
                let tokenizer = Tokenizer::from_checkpoint(&started.checkpoint)?;
                Finding::of(&speculation::measure(lab, sizes, &tokenizer, &started.chat_template()?)?)
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Scenario::Throughput => "throughput",
            Scenario::Trio => "trio",
            Scenario::Itl => "itl",
            Scenario::Prefix => "prefix",
            Scenario::Scheduler => "scheduler",
            Scenario::Structured => "structured",
            Scenario::Speculation => "speculation",
        }
    }
}

impl Engine {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        let started = self.sharing.start(&self.options, &self.name, For::Many)?;
        tell(&started.summary());
        let mut lab = Lab::new(started.handle.clone());
        lab.warm_up()?;
        let mut found = Map::new();
        for scenario in Scenario::value_variants() {
            if !self.scenario.is_empty() && !self.scenario.contains(scenario) {
                continue;
            }
            let finding = scenario.measure(&mut lab, &started, &self)?;
            found.insert(scenario.name().into(), finding.json);
            if !self.json {
                writeln!(output, "{}", finding.text)?;
                output.flush()?;
            }
        }
        if let Some(path) = &self.steps {
            let lines: Vec<_> = lab.steps_since(0).iter().map(|step| format!("{step}\n")).collect();
            std::fs::write(path, lines.concat())?;
        }
        if self.json {
            output.json(&json!({
                "model": started.name,
                "isa": started.machine.isa().name(),
                "threads": started.machine.threads().most(),
                "kv_tokens": started.kv_tokens(),
                "itl_target_ms": self.sharing.itl_target(),
                "policy": self.sharing.policy(),
                "repeat": self.sizes.repeat,
                "scenarios": found,
            }))?;
        }
        Ok(())
    }
}
