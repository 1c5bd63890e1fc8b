//! Processes that compile grammars on trial: this executable once more.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use ropeway_grammar::Workers;

/// The hidden command that a worker runs.
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
fn executable() -> PathBuf {
    if cfg!(target_os = "linux") {
        return "/proc/self/exe".into();
    }
    std::env::current_exe().unwrap_or_else(|_| "ropeway".into())
}
