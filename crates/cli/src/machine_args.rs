//! The arguments of every command that computes: which threads and instructions, and the one machine made of them.

use std::sync::{Arc, OnceLock};

use clap::Args;
use ropeway_kernels::Isa;
use ropeway_machine::{Machine, Threads};

/// What models of this process compute on.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Model options")]
pub struct MachineArgs {
    /// Most compute threads; how many of them a step uses is measured
    /// (default: one per CPU)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Use all of --threads for every step, even where fewer are faster
    #[arg(long)]
    exact_threads: bool,
    /// Instruction set: avx512-vnni, avx2, portable or reference (default: the
    /// best this CPU has)
    #[arg(long, value_name = "NAME", value_parser = parse_isa)]
    isa: Option<Isa>,
    /// Started when it is first asked for; clones of the arguments share it.
    #[arg(skip)]
    machine: Arc<OnceLock<Machine>>,
}

impl MachineArgs {
    /// The machine: the same one for every model that is loaded with these arguments.
    pub fn machine(&self) -> Machine {
        self.machine.get_or_init(|| Machine::new(self.isa(), self.threads())).clone()
    }

    fn isa(&self) -> Isa {
        self.isa.unwrap_or_else(Isa::best)
    }

    fn threads(&self) -> Threads {
        let most = self.threads.map_or_else(|| Threads::available().most(), usize::from);
        if self.exact_threads { Threads::Exactly(most) } else { Threads::UpTo(most) }
    }
}

/// An instruction set by its name.
fn parse_isa(name: &str) -> Result<Isa, String> {
    Isa::named(name).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: MachineArgs,
    }

    fn parse(line: &[&str]) -> MachineArgs {
        Line::try_parse_from(["test"].iter().chain(line)).expect("parsed").args
    }

    #[test]
    fn threads_are_a_bound_unless_they_are_to_be_exact() {
        assert_eq!(parse(&["--threads", "3"]).machine().threads(), Threads::UpTo(3));
        assert_eq!(parse(&["--threads", "3", "--exact-threads"]).machine().threads(), Threads::Exactly(3));
        assert_eq!(parse(&[]).threads(), Threads::available());
    }

    #[test]
    fn clones_of_the_arguments_share_one_machine() {
        let args = parse(&["--threads", "1"]);
        let other = args.clone();
        args.machine();
        assert!(other.machine.get().is_some());
    }
}
