//! Signals that ask the program to end.
//!
//! `run` takes Ctrl-C as a flag that work looks at between its steps ([`listen`]). Commands that wait for others (`serve`, `pull`)
//! hear SIGINT and SIGTERM on a thread of its own ([`on_end`]): the first one is passed on, the second ends the program at once
//! with 130 or 143. Elsewhere a signal ends the program, as it does everywhere.

use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use ropeway_cuda::end_process;
use ropeway_hub::Cancel;

use crate::failure::Failure;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The word to stop that all pulls of this process hear.
static PULLS: LazyLock<Cancel> = LazyLock::new(Cancel::default);

/// The exit code that the first signal asked for; 0 before.
static ASKED: AtomicU8 = AtomicU8::new(0);

/// From now on Ctrl-C sets the flag instead of ending the program.
pub fn listen() -> Result<(), Failure> {
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed)).map_err(|error| {
        Failure::new(error, "run it where Ctrl-C can be heard, or ask once with `ropeway run MODEL PROMPT`")
    })
}

/// Forgets an earlier Ctrl-C.
pub fn reset() {
    INTERRUPTED.store(false, Ordering::Relaxed);
}

/// Set once Ctrl-C was pressed.
pub fn flag() -> &'static AtomicBool {
    &INTERRUPTED
}

/// The word to stop that all pulls of this process hear.
pub fn pulls() -> &'static Cancel {
    &PULLS
}

/// The exit code of a program that a signal made give up what it did: 130 or 143.
pub fn exit_code() -> Option<u8> {
    Some(ASKED.load(Ordering::Relaxed)).filter(|code| *code > 0)
}

/// Gives up what this command does at the first signal: pulls are stopped, and the exit code says why.
pub fn give_up_on_signal() -> io::Result<()> {
    on_end(|signal| {
        ASKED.store(signal.exit_code(), Ordering::Relaxed);
        PULLS.cancel();
    })
}

/// A signal that asks the program to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Signal {
    /// 128 and the signal's number, as shells have it.
    pub fn exit_code(self) -> u8 {
        match self {
            Signal::Interrupt => 130,
            Signal::Terminate => 143,
        }
    }
}

/// Calls `first` at the first signal; the second one ends the program at once. They are heard on a thread of their own, which
/// nothing that the program does can hold up.
pub fn on_end(first: impl FnOnce(Signal) + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _context = runtime.enter();
        Signals::new()?
    };
    let hear = move || {
        first(runtime.block_on(signals.next()));
        end_process(runtime.block_on(signals.next()).exit_code());
    };
    thread::Builder::new().name("signals".into()).spawn(hear).map(drop)
}

/// Ends the program when so much time has passed, whatever runs then, with the code that `farewell` gives. Files stay valid: a
/// program may be killed at any moment, and this is no different.
pub fn end_within(time: Duration, farewell: impl FnOnce() -> u8 + Send + 'static) {
    thread::spawn(move || {
        thread::sleep(time);
        tracing::warn!(target: "serve", "something still runs that could not be stopped; ending without it");
        end_process(farewell());
    });
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals)
    }

    async fn next(&mut self) -> Signal {
        let _ = tokio::signal::ctrl_c().await;
        Signal::Interrupt
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const CHILD: &str = "ROPEWAY_TEST_NEVER_RETURNS";

    #[test]
    fn a_process_whose_main_thread_never_returns_is_ended() {
        if std::env::var_os(CHILD).is_some() {
            end_within(Duration::ZERO, || 7);
            loop {
                thread::park();
            }
        }
        let name = "interrupt::tests::a_process_whose_main_thread_never_returns_is_ended";
        let program = std::env::current_exe().unwrap();
        let status = Command::new(program).args(["--exact", name]).env(CHILD, "1").status().unwrap();
        assert_eq!(status.code(), Some(7));
    }

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!((Signal::Interrupt.exit_code(), Signal::Terminate.exit_code()), (130, 143));
    }
}
