//! Processes that compile grammars on trial: this executable once more, with an argument that is no command for people.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::OnceLock;

use ropeway_grammar::Workers;

/// The first argument of a worker.
const COMMAND: &str = "compile-grammar";

/// The workers of this process, which all its models share.
pub fn grammar_workers() -> Workers {
    static WORKERS: OnceLock<Workers> = OnceLock::new();
    WORKERS.get_or_init(|| Workers::new(worker)).clone()
}

fn worker() -> Command {
    let mut command = Command::new(executable());
    command.arg(COMMAND);
    command
}

/// This executable, even if its file was replaced by a newer one since.
pub fn executable() -> PathBuf {
    if cfg!(target_os = "linux") {
        return "/proc/self/exe".into();
    }
    std::env::current_exe().unwrap_or_else(|_| "ropeway".into())
}

/// Whether this process is a worker.
pub fn is_worker() -> bool {
    std::env::args_os().nth(1).is_some_and(|command| command == COMMAND)
}

/// Compiles what comes in until it ends. Nobody else may hold standard output meanwhile.
pub fn work() -> ExitCode {
    if ropeway_grammar::work().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
