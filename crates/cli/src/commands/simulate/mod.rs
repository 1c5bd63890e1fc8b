//! `ropeway simulate`: what the scheduler would do to a workload, without a model and without waiting.

mod cost;
mod kinds;
mod machine;
mod plot;
mod pool;
mod report;
mod speculation;
mod trace;

use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use ropeway_engine::scheduler::policy::PolicyKind;
use ropeway_engine::{Class, Speculation};
use ropeway_testkit::simulate::presets::{PRESETS, Preset};
use ropeway_testkit::simulate::workload::{Kind, Visit, Workload};
use ropeway_testkit::simulate::{Machine, Report, measure, simulate};

use crate::failure::Failure;
use crate::output::Output;
use machine::MachineArgs;
use pool::PoolArgs;
use trace::TraceArgs;

/// Requests of a workload, unless told.
const REQUESTS: usize = 20_000;

const HELP: &str = "\
The scheduler, the KV blocks and the streams are the real ones; only the
model is replaced by the time it would take. A step costs

  seconds = STEP + TOKEN * tokens + ROW * streams + PAIR * attended positions
            + READ * positions read by each chunk

Workloads (--preset):
  chat              people chatting
  agent-trio        85, 113 and 7,600 tokens at once, beside people chatting
  extraction-burst  18 extractions at once, with a shared prompt of 600 tokens
  mixed             chat (interactive), an API (default) and a bulk job
  overload          mixed, at half again what the machine can do

Machines (--machine), fitted to measurements:
  xeon-135m         SmolLM2-135M in 4 bits on 2 cores of an Ice Lake Xeon
  h200-1.5b         Qwen2.5-1.5B in bf16 on one H200, as fast as vLLM
  h200-8b           Llama-3-8B in bf16 on one H200, as fast as vLLM

Examples:
  ropeway simulate                      every policy on the chat workload
  ropeway simulate --preset agent-trio --svg trio.svg
  ropeway simulate --policy fair --load 0.95    how close to the limit?
  ropeway simulate --policy fair --requests 1000000
  ropeway simulate --kind interactive,5,85,64 --kind bulk,1,2000,200
  ropeway bench model --json > a.json; ropeway simulate --cost a.json
  ropeway simulate --policy fair --speculate --acceptance 0.8
  ropeway simulate --trace conversation.jsonl --machine h200-8b \
    --kv-memory 40GB,110GB --kv-disk 1TB,3.84TB

Columns: first token and total count from a request's arrival, queued until
its first step. `busy` is the share of time in which something was computed,
`batch` the mean number of requests in a step, `kv` the mean share of blocks
held. With --speculate every policy is also run without, on the same requests.

Pools (--pool N) run the queue and the routing that `ropeway serve --upstream`
uses, unchanged, over N upstreams. Each of them is a cost model of a server
with continuous batching and a prefix cache. Scenarios (--scenario):
  routing    affinity, least-tokens, random and round-robin on the same users
  failures   upstreams die and come back: what moves, what is lost
  overload   half again what the pool can do; then half of it from 8 accounts
Users chat in turns (60 %), send documents to an API (30 %) or bulk (10 %), most
of them with the instructions of one of 64 applications first.
  ropeway simulate --pool 16
  ropeway simulate --pool 1000 --users 1000000 --scenario routing
  ropeway simulate --pool 4,16,64 --trace conversation.jsonl --speed 4
`cached` is the share of prompt tokens (blocks of a trace) that upstreams held,
`expected` what the dispatcher knew of it. `window` is how many requests an
upstream may have at a time. `gap` is from a broken stream to its next token.

A trace is replayed with every size of memory, without a disk and with every
size of one. Prompts are equal as far as the trace says, so that the engine's own
prefix cache finds what it would have found. Prompt blocks (512 tokens, and
what is left at the end) are those of requests that were answered.";

/// Try a workload against the scheduler: latency and throughput per policy
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Simulate {
    /// A realistic workload
    #[arg(long, value_name = "NAME", default_value = "chat", value_parser = preset, conflicts_with = "kind")]
    preset: Preset,
    /// Your own workload: requests of a class (interactive, default, bulk), how
    /// often they come in relation to the other kinds, median prompt and answer
    /// in tokens; may be given several times
    #[arg(long, value_name = "CLASS,WEIGHT,PROMPT,ANSWER", value_parser = kinds::parse)]
    kind: Vec<(f64, Kind)>,
    /// Requests a second (default: by --load)
    #[arg(long, value_parser = positive)]
    rate: Option<f64>,
    /// Share of the machine's capacity that is asked for (default: the preset's)
    #[arg(long, value_parser = positive, conflicts_with = "rate")]
    load: Option<f64>,
    /// Clients among whom requests are spread (default: the preset's)
    #[arg(long)]
    clients: Option<usize>,
    /// fair, fifo, shortest or balance; or all, one after another (default: all,
    /// fair for a trace)
    #[arg(long, value_parser = policies)]
    policy: Option<Policies>,
    /// How many requests come (default: 20,000, all of a trace)
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// The same seed gives the same requests, and the same report
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    pool: PoolArgs,
    /// Write a plot: first token (cumulative), and the queue over time
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Instead, measure on the real clock what planning and committing a step
    /// cost with 64 streams and 1,000 requests waiting
    #[arg(long)]
    measure_scheduler: bool,
}

/// Which policies are tried.
#[derive(Clone, Debug)]
struct Policies(Vec<PolicyKind>);

/// What is simulated, and what it came to.
struct Outcome {
    policy: PolicyKind,
    report: Report,
    /// The same requests without speculation, where there was any.
    plain: Option<Report>,
}

impl Simulate {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        if self.measure_scheduler {
            return measure_scheduler(output, self.json);
        }
        if !self.pool.pool.is_empty() {
            return self.run_pool(output);
        }
        if let Some(path) = &self.trace.trace {
            let policies = self.policies(&[PolicyKind::default()]);
            let plan = trace::Plan { policies: &policies, requests: self.requests, json: self.json };
            return self.trace.run(path, &self.machine, &plan, output);
        }
        self.run_workload(output)
    }

    fn run_pool(&self, output: &mut Output) -> Result<(), Failure> {
        let options = pool::Options {
            machine: &self.machine,
            load: self.load,
            seed: self.seed,
            requests: self.requests,
            svg: self.svg.as_ref(),
            json: self.json,
        };
        match &self.trace.trace {
            Some(path) => self.pool.replay(path, &self.trace, &options, output),
            None => self.pool.run(&options, output),
        }
    }

    fn run_workload(self, output: &mut Output) -> Result<(), Failure> {
        let mut machine = self.machine.machine();
        let (workload, requests) = (self.workload(), self.requests.unwrap_or(REQUESTS));
        let policies = self.policies(&PolicyKind::ALL);
        let context = machine.limits.context.min(self.machine.kv_tokens());
        let rate = self.rate.unwrap_or_else(|| workload.rate(&machine.cost, context));
        let began = Instant::now();
        let bar = progress(requests);
        let mut outcomes = Vec::new();
        for policy in &policies {
            machine.settings.policy = *policy;
            bar.set_message(policy.name());
            let run = |machine: &Machine| {
                let arrivals = workload.arrivals(self.seed, rate, requests, context);
                simulate(machine, arrivals, |came| bar.set_position(came))
            };
            let plain = machine.acceptance.map(|_| run(&Machine { acceptance: None, ..machine.clone() }));
            outcomes.push(Outcome { policy: *policy, report: run(&machine), plain });
        }
        bar.finish_and_clear();
        self.tell_speed(requests * policies.len(), began.elapsed());
        if let Some(path) = &self.svg {
            let title = format!("{} at {rate:.2} requests a second", self.name());
            std::fs::write(path, plot::svg(&title, &outcomes))?;
        }
        let subject = report::Subject {
            workload: self.name(),
            requests,
            rate,
            seed: self.seed,
            cost: machine.cost.coefficients(),
        };
        if self.json {
            Ok(output.json(&report::json(&subject, &outcomes))?)
        } else {
            Ok(report::print(output, &subject, &outcomes)?)
        }
    }

    fn name(&self) -> &'static str {
        if self.kind.is_empty() { self.preset.name } else { "custom" }
    }

    fn workload(&self) -> Workload {
        let mut workload = self.preset.workload();
        if !self.kind.is_empty() {
            let visit = |(weight, kind): &(f64, Kind)| Visit { weight: *weight, kinds: vec![*kind] };
            workload.visits = self.kind.iter().map(visit).collect();
        }
        workload.load = self.load.unwrap_or(workload.load);
        workload.clients = self.clients.unwrap_or(workload.clients);
        workload
    }

    fn policies(&self, usual: &[PolicyKind]) -> Vec<PolicyKind> {
        self.policy.as_ref().map_or_else(|| usual.to_vec(), |given| given.0.clone())
    }

    /// How fast the simulation itself was; no part of the result, which is the same every time.
    fn tell_speed(&self, requests: usize, took: Duration) {
        let runs = if self.machine.speculation() == Speculation::Off { 1 } else { 2 };
        let requests = (runs * requests) as f64;
        let seconds = took.as_secs_f64();
        let _ = writeln!(
            stderr(),
            "simulated {requests} requests in {seconds:.2} s ({:.0} a second)",
            requests / seconds.max(1e-9)
        );
    }
}

/// A bar over so many requests.
fn progress(requests: usize) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:9} [{bar:30}] {human_pos}/{human_len} {per_sec} {eta}");
    ProgressBar::new(requests as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn measure_scheduler(output: &mut Output, json: bool) -> Result<(), Failure> {
    let measured = measure::overhead(64, 1000, 1000);
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let (plan, commit) = (micros(measured.plan), micros(measured.commit));
    let (running, waiting) = (measured.running, measured.waiting);
    if json {
        let report = serde_json::json!({ "running": running, "waiting": waiting, "plan_us": plan, "commit_us": commit });
        return Ok(output.json(&report)?);
    }
    writeln!(
        output,
        "{running} running, {waiting} waiting: plan {plan:.1} us, commit {commit:.1} us a step"
    )?;
    Ok(())
}

fn preset(name: &str) -> Result<Preset, String> {
    let names = || PRESETS.map(|preset| preset.name).join(", ");
    Preset::find(name).ok_or_else(|| format!("no such workload; there are {}", names()))
}

fn policies(name: &str) -> Result<Policies, String> {
    if name == "all" {
        return Ok(Policies(PolicyKind::ALL.to_vec()));
    }
    name.parse()
        .map(|policy| Policies(vec![policy]))
        .map_err(|_| "one of all, fair, fifo, shortest, balance".into())
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "a number".to_owned())?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err("a number above 0".into()) }
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "a share, from 0 to 1".into())
}

/// The class of this name.
fn class(name: &str) -> Option<Class> {
    Class::ALL.into_iter().find(|class| class.name() == name)
}
