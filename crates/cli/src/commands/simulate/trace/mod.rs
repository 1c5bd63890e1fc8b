//! `ropeway simulate --trace FILE`: recorded traffic on machines with more or less memory and disk.
//!
//! ```text
//! room.rs   how much a tier holds        report.rs   a row per pair of sizes, and JSON
//! ```

mod report;
mod room;

use std::io::{Write, stderr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;
use ropeway_engine::scheduler::policy::PolicyKind;
use ropeway_executor::Limits;
use ropeway_testkit::simulate::hardware::{DiskSpeed, Hardware};
use ropeway_testkit::simulate::replay::{Replay, blocks, endless};
use ropeway_testkit::simulate::{Disk, Found, Machine, Report, simulate};
use ropeway_testkit::trace::endless::Endless;
use ropeway_testkit::trace::{BLOCK, Trace};

use super::machine::MachineArgs;
use super::{positive, progress};
use crate::failure::Failure;
use crate::output::Output;
use room::Room;

/// Most blocks of a tier: more than that are endless.
const MOST_BLOCKS: usize = 1 << 26;

/// Recorded traffic instead of a workload.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// Instead, replay recorded traffic: Azure's CSV, or JSON lines of
    /// Mooncake's shape with the hash of every 512 tokens
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["preset", "kind", "rate", "load", "clients", "seed", "svg", "measure_scheduler"])]
    pub trace: Option<PathBuf>,
    /// How many times faster than recorded the requests of a trace come
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = positive, requires = "trace")]
    pub speed: f64,
    /// Sizes of KV memory to try, such as 40GB,110GB or endless (default: the
    /// machine's)
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = room::parse, requires = "trace")]
    kv_memory: Vec<Room>,
    /// Sizes of a disk below it to try, besides none
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = room::parse, requires = "trace")]
    kv_disk: Vec<Room>,
    /// What the disk reads and writes, in GB a second (default: the machine's)
    #[arg(long, value_name = "READ,WRITE", value_parser = disk_speed, requires = "kv_disk")]
    disk_speed: Option<[f64; 2]>,
    /// Seconds after which a request of a trace has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, value_parser = positive, requires = "trace")]
    timeout: f64,
}

/// A trace and what it is replayed on.
struct Stage<'a> {
    trace: &'a Trace,
    hardware: Hardware,
    /// Memory is set by every run.
    machine: Machine,
    replay: Replay,
    disk: DiskSpeed,
    bar: ProgressBar,
}

/// One run.
struct Outcome {
    policy: PolicyKind,
    memory: Room,
    disk: Option<Room>,
    report: Report,
}

/// What an endless cache finds, by the trace and by the engine.
struct Bound {
    counted: Endless,
    found: Found,
}

impl TraceArgs {
    /// Replays a trace under each policy with each pair of sizes.
    pub fn run(
        &self,
        path: &std::path::Path,
        machine: &MachineArgs,
        plan: &Plan<'_>,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let failed = |error| {
            Failure::new(error, "give a trace in one of the formats that `ropeway simulate --help` names")
        };
        let mut trace = Trace::open(path, plan.requests).map_err(failed)?;
        let hardware = machine.hardware;
        let base = machine.machine();
        let memories = self.memories(hardware)?;
        let cut = trace.fit(longest(base.limits.context, hardware, &memories));
        let began = Instant::now();
        let bar = progress(trace.len());
        let bound = bound(&trace, &bar)?;
        let stage = Stage {
            trace: &trace,
            hardware,
            machine: base,
            replay: Replay { speed: self.speed, timeout: self.timeout() },
            disk: self.disk(hardware),
            bar,
        };
        let mut outcomes = Vec::new();
        for policy in plan.policies {
            for memory in &memories {
                for disk in std::iter::once(None).chain(self.kv_disk.iter().copied().map(Some)) {
                    outcomes.push(stage.run(*policy, *memory, disk));
                }
            }
        }
        stage.bar.finish_and_clear();
        tell_speed(outcomes.len() * trace.len(), began.elapsed());
        let subject =
            report::Subject { path, trace: &trace, cut, hardware, speed: self.speed, disk: stage.disk };
        if plan.json {
            Ok(output.json(&report::json(&subject, &bound, &outcomes))?)
        } else {
            Ok(report::print(output, &subject, &bound, &outcomes)?)
        }
    }

    /// Seconds after which a request has failed.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout)
    }

    /// Blocks that fit into the memory of each upstream of a pool, for which one size can be given.
    pub fn pool_blocks(&self, hardware: Hardware, trace: &Trace) -> Result<usize, Failure> {
        match self.memories(hardware)?[..] {
            [memory] => Ok(memory.blocks(hardware.bytes(BLOCK), blocks(trace)).min(MOST_BLOCKS)),
            _ => Err(Failure::new(
                "the upstreams of a pool have one size of KV memory",
                "give one size with --kv-memory, and run again for others",
            )),
        }
    }

    fn memories(&self, hardware: Hardware) -> Result<Vec<Room>, Failure> {
        let memories = if self.kv_memory.is_empty() {
            vec![Room::Bytes(hardware.kv_memory)]
        } else {
            self.kv_memory.clone()
        };
        let least = hardware.bytes(2 * BLOCK);
        match memories.iter().find(|memory| memory.blocks(hardware.bytes(BLOCK), 2) < 2) {
            Some(small) => Err(Failure::new(
                format!("{small} of KV memory hold less than two blocks of {BLOCK} tokens"),
                format!("give {} or more", Room::Bytes(least)),
            )),
            None => Ok(memories),
        }
    }

    fn disk(&self, hardware: Hardware) -> DiskSpeed {
        match self.disk_speed {
            Some([read, write]) => DiskSpeed { read, write, ..hardware.disk },
            None => hardware.disk,
        }
    }
}

/// What is run, and how it is told.
pub struct Plan<'a> {
    pub policies: &'a [PolicyKind],
    /// Only the first so many requests.
    pub requests: Option<usize>,
    pub json: bool,
}

impl Stage<'_> {
    fn run(&self, policy: PolicyKind, memory: Room, disk: Option<Room>) -> Outcome {
        let mut machine = self.machine.clone();
        let (block_bytes, all) = (self.hardware.bytes(BLOCK), blocks(self.trace));
        let held = |room: Room| room.blocks(block_bytes, all).min(MOST_BLOCKS);
        machine.limits = Limits {
            block_tokens: BLOCK,
            block_bytes: block_bytes as usize,
            blocks: held(memory),
            ..machine.limits
        };
        machine.settings.policy = policy;
        machine.settings.cost = Some(machine.cost.clone());
        machine.disk = disk.map(|room| Disk {
            model: self.disk.model(held(room), block_bytes),
            copy: self.hardware.copying(BLOCK),
        });
        let below = disk.map_or("no disk".to_owned(), |room| room.to_string());
        self.bar.set_message(format!("{memory}, {below}"));
        let arrivals = self.replay.arrivals(self.trace);
        let report = simulate(&machine, arrivals, |came| self.bar.set_position(came));
        Outcome { policy, memory, disk, report }
    }
}

/// Tokens that prompt and answer may have on every machine that is tried.
fn longest(context: usize, hardware: Hardware, memories: &[Room]) -> usize {
    let held = |memory: &Room| memory.blocks(hardware.bytes(BLOCK), MOST_BLOCKS) * BLOCK;
    memories.iter().map(held).min().unwrap_or(context).min(context)
}

/// Counts what an endless cache finds and lets the engine find it.
fn bound(trace: &Trace, bar: &ProgressBar) -> Result<Bound, Failure> {
    bar.set_message("endless");
    let counted = Endless::count(trace);
    let found = endless(trace, |came| bar.set_position(came));
    if (found.blocks, found.memory) != (counted.blocks, counted.findable) {
        let Endless { blocks, findable, .. } = counted;
        let told = format!(
            "with endless memory the engine found {} of {} blocks, the trace has {findable} of {blocks}",
            found.memory, found.blocks
        );
        return Err(Failure::new(
            told,
            "this is a fault of the prefix cache or of the trace's reader; please report it",
        ));
    }
    Ok(Bound { counted, found })
}

/// How fast the simulation itself was; no part of the result, which is the same every time.
fn tell_speed(requests: usize, took: Duration) {
    let seconds = took.as_secs_f64();
    let _ = writeln!(stderr(), "simulated {requests} requests in {seconds:.1} s, and the endless cache");
}

fn disk_speed(text: &str) -> Result<[f64; 2], String> {
    let hint = || "two numbers of GB a second, as in 6.5,4".to_owned();
    let (read, write) = text.split_once(',').ok_or_else(hint)?;
    let bytes = |text: &str| positive(text).map(|speed| speed * 1e9).map_err(|_| hint());
    Ok([bytes(read)?, bytes(write)?])
}
