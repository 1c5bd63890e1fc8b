//! `ropeway simulate --pool N`: the real dispatcher in front of servers that are only cost models.
//!
//! ```text
//! source.rs    where requests come from: crowd.rs (users), recorded.rs (a trace)
//! plan.rs      the pool, and how its servers die
//! world.rs     events between source, dispatcher and servers        calendar.rs   their order; flights.rs: requests on their way
//! scenario.rs  what is tried: routing, failures, overload            outcome.rs    what it came to
//! report.rs    tables; json.rs: the same for programs                plot.rs       first tokens by routing
//! ```

mod calendar;
mod crowd;
mod flights;
mod json;
mod outcome;
mod plan;
mod plot;
mod recorded;
mod report;
mod scenario;
mod source;
mod world;

use std::io::{Write, stderr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use ropeway_pool::dispatch::{Capacity, Routing, Settings};
use ropeway_testkit::simulate::server::ServerModel;
use ropeway_testkit::trace::endless::Endless;
use ropeway_testkit::trace::{BLOCK, Trace};

use super::machine::MachineArgs;
use super::{TraceArgs, progress};
use crate::failure::Failure;
use crate::output::Output;
use plan::PoolPlan;
use recorded::RecordedSource;
use scenario::{Load, Run, Scenario};
use world::World;

/// Users for each upstream, and the fewest: some minutes of work for a small pool, one or two for a large one.
const USERS_PER_UPSTREAM: usize = 1000;
const FEWEST_USERS: usize = 40_000;

/// What the dispatcher remembers for each upstream, in blocks and sessions; more than a server holds of either at a time.
const REMEMBERED: usize = 1024;

/// Servers behind the dispatcher instead of one engine.
#[derive(Clone, Debug, Args)]
pub struct PoolArgs {
    /// Instead, run the queue and the routing of a pool over so many upstreams;
    /// several sizes are tried one after another
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000),
          conflicts_with_all = ["preset", "kind", "rate", "clients", "policy", "measure_scheduler", "speculate", "kv_disk"])]
    pub pool: Vec<u32>,
    /// Users of a pool, each with a conversation (default: 1,000 for each
    /// upstream, 40,000 at least)
    #[arg(long, value_name = "N", requires = "pool", conflicts_with_all = ["trace", "requests"])]
    users: Option<usize>,
    /// How upstreams are chosen: affinity, least-tokens, random, round-robin;
    /// or all
    #[arg(long, value_name = "NAME", requires = "pool", default_value = "all", value_parser = routings)]
    routing: Routings,
    /// What is tried
    #[arg(long, value_name = "NAME", requires = "pool", default_value = "all", conflicts_with = "trace")]
    scenario: Chosen,
    /// Most requests at an upstream (default: found out, as --upstream does)
    #[arg(long, value_name = "N", requires = "pool")]
    concurrency: Option<NonZeroUsize>,
}

/// Scenarios on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Chosen {
    /// All of them
    All,
    /// Every way to choose upstreams
    Routing,
    /// Upstreams that die and come back
    Failures,
    /// Half again more than the pool can do
    Overload,
}

impl Chosen {
    fn scenarios(self) -> &'static [Scenario] {
        match self {
            Chosen::All => &Scenario::ALL,
            Chosen::Routing => &[Scenario::Routing],
            Chosen::Failures => &[Scenario::Failures],
            Chosen::Overload => &[Scenario::Overload],
        }
    }
}

/// Ways to choose upstreams.
#[derive(Clone, Debug)]
struct Routings(Vec<Routing>);

/// What else was said on the command line.
pub struct Options<'a> {
    pub machine: &'a MachineArgs,
    pub load: Option<f64>,
    pub seed: u64,
    pub requests: Option<usize>,
    pub svg: Option<&'a PathBuf>,
    pub json: bool,
}

impl PoolArgs {
    /// Tries users on pools.
    pub fn run(&self, options: &Options<'_>, output: &mut Output) -> Result<(), Failure> {
        if options.requests.is_some() {
            return Err(Failure::new(
                "--requests is for one machine or a trace",
                "say how many come with --users",
            ));
        }
        let (began, bar) = (Instant::now(), progress(0));
        let mut runs = Vec::new();
        for servers in self.sizes() {
            for scenario in self.scenario.scenarios() {
                let load = Load { seed: options.seed, users: self.users(servers), share: options.load };
                let plan = self.plan(options.machine, servers, crowd::BLOCK);
                runs.extend(scenario.run(&plan, &load, &self.routing.0, &bar));
            }
        }
        bar.finish_and_clear();
        tell_speed(&runs, began.elapsed());
        if let Some(path) = options.svg {
            std::fs::write(path, plot::svg(options.machine.hardware.about, &runs))?;
        }
        let subject = report::Subject { hardware: &options.machine.hardware, seed: Some(options.seed) };
        if options.json {
            return Ok(output.json(&json::users(&subject, &runs))?);
        }
        Ok(report::users(output, &subject, &runs)?)
    }

    /// Replays a trace on pools.
    pub fn replay(
        &self,
        path: &Path,
        args: &TraceArgs,
        options: &Options<'_>,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let failed = |error| {
            Failure::new(error, "give a trace in one of the formats that `ropeway simulate --help` names")
        };
        let mut trace = Trace::open(path, options.requests).map_err(failed)?;
        let (began, bar) = (Instant::now(), progress(trace.len()));
        let mut model = self.plan(options.machine, 1, BLOCK).model;
        model.blocks = args.pool_blocks(options.machine.hardware, &trace)?;
        let cut = trace.fit((model.blocks * BLOCK).min(options.machine.machine().limits.context));
        let mut runs = Vec::new();
        for servers in self.sizes() {
            for routing in &self.routing.0 {
                let mut plan = PoolPlan { model, ..self.plan(options.machine, servers, BLOCK) };
                plan.settings.routing = *routing;
                bar.set_message(format!("{servers} {}", routing.name()));
                let mut source = RecordedSource::new(&trace, args.speed, args.timeout());
                let outcome = World::new(&plan, &mut source).run(|came| bar.set_position(came));
                runs.push(Run { servers, label: routing.name().into(), load: 0.0, scenario: None, outcome });
            }
        }
        bar.finish_and_clear();
        tell_speed(&runs, began.elapsed());
        let subject = report::Subject { hardware: &options.machine.hardware, seed: None };
        let replayed =
            report::Replayed { path, trace: &trace, cut, speed: args.speed, endless: Endless::count(&trace) };
        if options.json {
            return Ok(output.json(&json::trace(&subject, &replayed, &runs))?);
        }
        Ok(report::trace(output, &subject, &replayed, &runs)?)
    }

    fn sizes(&self) -> impl Iterator<Item = usize> {
        self.pool.iter().map(|size| *size as usize)
    }

    fn users(&self, servers: usize) -> usize {
        self.users.unwrap_or_else(|| FEWEST_USERS.max(USERS_PER_UPSTREAM * servers))
    }

    fn plan(&self, machine: &MachineArgs, servers: usize, block_tokens: usize) -> PoolPlan {
        let (limits, cost) = (machine.machine().limits, machine.machine().cost);
        let settings = Settings {
            most_waiting: machine.queue * servers,
            block_tokens,
            prefix_blocks: REMEMBERED * servers.max(64),
            sessions: REMEMBERED * servers.max(64),
            ..Settings::default()
        };
        let model = ServerModel {
            cost: cost.coefficients(),
            step_tokens: limits.step_tokens,
            rows: limits.step_rows,
            block_tokens,
            blocks: machine.kv_tokens().div_ceil(block_tokens),
        };
        let capacity = Capacity { concurrency: self.concurrency, ..Capacity::default() };
        PoolPlan { servers, model, capacity, settings, deaths: None, seed: 0 }
    }
}

/// How fast the simulation itself was; no part of the result, which is the same every time.
fn tell_speed(runs: &[Run], took: Duration) {
    let requests: u64 = runs.iter().map(|run| run.outcome.asked).sum();
    let seconds = took.as_secs_f64();
    let speed = requests as f64 / seconds.max(1e-9);
    let _ = writeln!(
        stderr(),
        "simulated {requests} requests in {} runs, {seconds:.1} s ({speed:.0} a second)",
        runs.len()
    );
}

/// A name for what is tried on a bar that counts users or requests.
fn begin(bar: &ProgressBar, len: usize, message: String) {
    bar.set_length(len as u64);
    bar.set_position(0);
    bar.set_message(message);
}

fn routings(name: &str) -> Result<Routings, String> {
    if name == "all" {
        return Ok(Routings(Routing::ALL.to_vec()));
    }
    let found = Routing::ALL.into_iter().find(|routing| routing.name() == name);
    let names = || Routing::ALL.map(Routing::name).join(", ");
    found.map(|routing| Routings(vec![routing])).ok_or_else(|| format!("one of all, {}", names()))
}
