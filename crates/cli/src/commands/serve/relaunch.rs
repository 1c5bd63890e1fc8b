//! A server that begins anew in the same process. Once a kernel has gone astray, the NVIDIA driver serves no process that used that GPU
//! any more; only a new program can.
//!
//! ```text
//! the GPU is lost     its running requests have ended; those of other models finish, as at an end (`super::end`)
//! execve              the same program with the same arguments, process number and listening sockets: whoever connects
//!                     meanwhile waits until its models are loaded
//! the third time      within ten minutes: the server stays as it is, and `/health` says why
//! ```

#![allow(unsafe_code, reason = "a listening socket is known by its number only")]

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, io};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::failure::Failure;
use crate::grammar_workers::executable;

/// The listening sockets of the program before: its process, then their numbers.
const LISTENERS: &str = "ROPEWAY_INHERITED_LISTENERS";

/// When GPUs were lost, in seconds of Unix time.
const LOSSES: &str = "ROPEWAY_GPU_LOSSES";

/// How often a GPU may be lost within [`LATELY`].
const MOST_LOSSES: usize = 3;
const LATELY: u64 = 600;

/// How often the driver is asked about.
const GLANCE: Duration = Duration::from_millis(200);

/// Done when only a new program can use the GPU again, and it has not been lost too often.
pub async fn needed() {
    while !ropeway_cuda::needs_new_process() {
        tokio::time::sleep(GLANCE).await;
    }
    if recent_losses(now()).len() + 1 < MOST_LOSSES {
        tracing::error!(target: "serve", "the driver serves this process no more; finishing what runs elsewhere, then beginning anew");
        return;
    }
    tracing::error!(target: "serve", "the GPU was lost {MOST_LOSSES} times within {LATELY} s; its models stay down until the server is started again");
    std::future::pending::<()>().await;
}

/// Becomes the same program anew, which takes over these sockets. Returns if that is impossible.
pub fn begin_anew(listeners: &[OwnedFd]) -> Failure {
    let error = exec(listeners);
    Failure::new(format!("the server could not begin anew: {error}"), "start it again")
}

/// Whether this program took over from one that had lost a GPU.
pub fn is_relaunched() -> bool {
    !recent_losses(now()).is_empty()
}

fn exec(listeners: &[OwnedFd]) -> io::Error {
    for listener in listeners {
        if let Err(error) = fcntl(listener, FcntlArg::F_SETFD(FdFlag::empty())) {
            return error.into();
        }
    }
    let mut words = env::args_os();
    // By its own name where that is still there: processes are known by what they were started as.
    let path = env::current_exe().ok().filter(|path| path.exists());
    let mut command = Command::new(path.unwrap_or_else(executable));
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    let numbers: Vec<_> = listeners.iter().map(|listener| listener.as_raw_fd().to_string()).collect();
    let now = now();
    let losses: Vec<_> = recent_losses(now).into_iter().chain([now]).map(|time| time.to_string()).collect();
    command
        .args(words)
        .env(LISTENERS, format!("{} {}", std::process::id(), numbers.join(" ")))
        .env(LOSSES, losses.join(" "))
        .exec()
}

/// Listening sockets that the program before has left for these addresses.
pub fn inherited(addresses: &[SocketAddr]) -> Option<Vec<TcpListener>> {
    let given = env::var(LISTENERS).ok()?;
    let mut words = given.split(' ').map(str::parse);
    if words.next()? != Ok(std::process::id()) {
        return None;
    }
    let numbers: Vec<u32> = words.collect::<Result<_, _>>().ok()?;
    let listeners: Vec<_> = numbers.into_iter().map(|number| adopted(number.cast_signed())).collect();
    let fits = |(listener, wanted): (&TcpListener, &SocketAddr)| {
        let is_there = |at: SocketAddr| at.ip() == wanted.ip() && [0, at.port()].contains(&wanted.port());
        listener.local_addr().is_ok_and(is_there)
    };
    let all_fit = listeners.len() == addresses.len() && listeners.iter().zip(addresses).all(fits);
    all_fit.then_some(listeners)
}

fn adopted(number: RawFd) -> TcpListener {
    // SAFETY: this very process was given the socket under this number, before it became this program, and nobody else takes it.
    let listener = unsafe { TcpListener::from_raw_fd(number) };
    // Programs that are started from here have no business with it.
    let _ = fcntl(&listener, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
    listener
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn recent_losses(now: u64) -> Vec<u64> {
    let given = env::var(LOSSES).unwrap_or_default();
    given
        .split(' ')
        .filter_map(|time| time.parse().ok())
        .filter(|time: &u64| time.saturating_add(LATELY) > now)
        .collect()
}
