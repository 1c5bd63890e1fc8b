//! The machine that is simulated, from the command line.

use std::time::Duration;

use clap::Args;
use clap::builder::ArgPredicate;
use ropeway_engine::scheduler::Pace;
use ropeway_engine::settings::DEFAULT_QUEUE;
use ropeway_engine::{Settings, Speculation};
use ropeway_executor::{Limits, StepSizes};
use ropeway_testkit::simulate::Machine;
use ropeway_testkit::simulate::hardware::{HARDWARE, Hardware};

use super::cost;
use super::share;

/// Tokens of a block, as the executors use.
const BLOCK_TOKENS: usize = 32;

/// What a pool is made of, and requests that may wait for each of them, unless told.
const POOL_MACHINE: &str = "h200-8b";
const POOL_QUEUE: &str = "64";

/// Fewest tokens that the KV memory holds.
const LEAST_TOKENS: usize = 1024;

/// A machine and how it is run.
#[derive(Clone, Debug, Args)]
pub struct MachineArgs {
    /// The machine and its model (of a pool: h200-8b, each of them); what follows
    /// changes parts of it
    #[arg(long = "machine", value_name = "NAME", default_value = HARDWARE[0].name,
          default_value_if("pool", ArgPredicate::IsPresent, POOL_MACHINE), value_parser = hardware)]
    pub hardware: Hardware,
    /// What a step costs: STEP,TOKEN,ROW,PAIR[,READ] in seconds, or a file written by
    /// `ropeway bench model --json` (default: the machine's)
    #[arg(long, value_name = "COST", value_parser = cost::parse)]
    cost: Option<cost::Cost>,
    /// Tokens that the KV memory holds (default: the machine's)
    #[arg(long, value_name = "TOKENS", conflicts_with = "trace")]
    kv_tokens: Option<usize>,
    /// Longest sequence (default: the machine's)
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1024..))]
    context: Option<u32>,
    /// Most tokens of a step (default: the machine's)
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    step_tokens: Option<u32>,
    /// Most streams of a step (default: the machine's)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rows: Option<u32>,
    /// Longest time between two tokens that a prompt beside a stream may cause
    /// (default: the machine's)
    #[arg(long, value_name = "MS")]
    itl_target: Option<u64>,
    /// Requests that may wait before more are turned down (of a pool: 64 for each
    /// upstream)
    #[arg(long, default_value_t = DEFAULT_QUEUE, default_value_if("pool", ArgPredicate::IsPresent, POOL_QUEUE))]
    pub queue: usize,
    /// Draft tokens: as many as the engine finds worth it (auto), or N of a step
    /// at most
    #[arg(long, value_name = "auto|off|N", num_args = 0..=1, default_missing_value = crate::speculation::DEFAULT,
          value_parser = crate::speculation::parse, conflicts_with = "trace")]
    speculate: Option<Speculation>,
    /// How often a drafted token is right if those before it are, from 0 to 1
    #[arg(long, value_name = "RATE", default_value_t = 0.7, value_parser = share)]
    acceptance: f64,
}

impl MachineArgs {
    /// The machine, with blocks as the executors use them and without a disk.
    pub fn machine(&self) -> Machine {
        let Hardware { context, step_tokens, rows, tile, itl_target, .. } = self.hardware;
        let or = |given: Option<u32>, usual: usize| given.map_or(usual, |given| given as usize);
        let limits = Limits {
            block_tokens: BLOCK_TOKENS,
            blocks: self.kv_tokens().max(LEAST_TOKENS).div_ceil(BLOCK_TOKENS),
            context: or(self.context, context),
            step_tokens: or(self.step_tokens, step_tokens),
            step_rows: or(self.rows, rows),
            vocab: 1 << 31,
            sizes: StepSizes::Multiples(tile),
            ..Limits::EXAMPLE
        };
        let target = self.itl_target.map_or(itl_target, |target| Duration::from_millis(target.max(1)));
        let settings = Settings {
            pace: Pace::new(target),
            queue: self.queue,
            speculation: self.speculation(),
            ..Settings::default()
        };
        let cost = self.cost.clone().map_or_else(|| self.hardware.cost(), |cost| cost.0);
        let acceptance = (settings.speculation != Speculation::Off).then_some(self.acceptance);
        Machine { limits, cost, settings, acceptance, disk: None }
    }

    /// Tokens that the KV memory holds.
    pub fn kv_tokens(&self) -> usize {
        let usual = self.hardware.kv_memory / self.hardware.token_bytes;
        self.kv_tokens.unwrap_or(usual as usize)
    }

    pub fn speculation(&self) -> Speculation {
        self.speculate.unwrap_or(Speculation::Off)
    }
}

fn hardware(name: &str) -> Result<Hardware, String> {
    let names = || HARDWARE.map(|hardware| hardware.name).join(", ");
    Hardware::find(name).ok_or_else(|| format!("no such machine; there are {}", names()))
}
