//! A process between the server and a program that it starts, so that the program never outlives it.
//!
//! ```text
//! ropeway serve ── stdin (never written to) ──> ropeway (keeper) ── own process group ──> vllm serve, and what that starts
//! ```
//! The system closes the pipe when the server ends, however it ends. The keeper then asks the whole group to end, and after a while
//! makes it. When the program ends by itself, what it leaves behind is ended too, and its exit code is passed on.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, io, thread};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::grammar_workers::executable;

/// Says that this process is a keeper; the program and its arguments follow.
const KEEPER: &str = "--keep-process";

/// Time that a program gets to end by itself: a GPU's memory is to be given back in order.
const FAREWELL: Duration = Duration::from_secs(10);

/// A command that runs `program` under a keeper. Its standard input must be piped and held.
pub fn command(program: OsString, arguments: impl IntoIterator<Item = OsString>) -> Command {
    let mut command = Command::new(executable());
    // Of its own group, so that Ctrl-C reaches the server only, which then ends the program in order.
    command.arg(KEEPER).arg(program).args(arguments).stdin(Stdio::piped()).process_group(0);
    command
}

/// Whether this process is a keeper.
pub fn is_keeper() -> bool {
    env::args_os().nth(1).is_some_and(|argument| argument == KEEPER)
}

/// Starts the program and stays until it has ended.
pub fn keep() -> ExitCode {
    let mut words = env::args_os().skip(2);
    let Some(program) = words.next() else { return ExitCode::from(2) };
    let started = Command::new(&program).args(words).stdin(Stdio::null()).process_group(0).spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            eprintln!("{} can't be started: {error}", program.display());
            return ExitCode::from(127);
        }
    };
    let group = Pid::from_raw(child.id().cast_signed());
    let has_ended = Arc::new(AtomicBool::new(false));
    end_with_the_server(group, Arc::clone(&has_ended));
    let status = child.wait();
    has_ended.store(true, Ordering::Relaxed);
    // Workers that it left behind.
    let _ = killpg(group, Signal::SIGKILL);
    let code = status.ok().and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(1))
}

fn end_with_the_server(group: Pid, has_ended: Arc<AtomicBool>) {
    thread::spawn(move || {
        let mut nothing = [0];
        while matches!(io::stdin().read(&mut nothing), Ok(1..)) {}
        let _ = killpg(group, Signal::SIGTERM);
        thread::sleep(FAREWELL);
        if !has_ended.load(Ordering::Relaxed) {
            let _ = killpg(group, Signal::SIGKILL);
        }
    });
}
