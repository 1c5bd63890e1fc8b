//! What a server's process and those it started hold, from `/proc`.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::server::Server;

/// How often the memory is looked at: peaks that matter last for longer.
const GLANCE: Duration = Duration::from_millis(20);

/// A server's memory before an attack, at its height, and when it was over, in MB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub before: f64,
    pub peak: f64,
    pub after: f64,
}

impl Memory {
    /// What the attack cost at most.
    pub fn growth(&self) -> f64 {
        self.peak - self.before
    }
}

/// The memory of a server while something is done.
pub fn during(server: &Server, act: impl FnOnce()) -> Memory {
    let (over, before) = (AtomicBool::new(false), now(server));
    let watch = || {
        let mut peak = before;
        while !over.load(Ordering::Relaxed) {
            peak = peak.max(now(server));
            std::thread::sleep(GLANCE);
        }
        peak
    };
    let peak = std::thread::scope(|scope| {
        let watching = scope.spawn(watch);
        let until = Over(&over);
        act();
        drop(until);
        watching.join().unwrap()
    });
    Memory { before, peak, after: now(server) }
}

/// Ends the watch, also where the act panics.
struct Over<'s>(&'s AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The memory of a server and of the processes it started that is in RAM, in MB.
pub fn now(server: &Server) -> f64 {
    with_children(server.pid()).iter().map(|pid| resident(*pid)).sum()
}

pub fn threads(server: &Server) -> usize {
    field(server.pid(), "Threads:").and_then(|count| count.parse().ok()).unwrap()
}

/// A process and those that it started.
fn with_children(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |other: &u32| parent(*other) == Some(pid);
    std::iter::once(pid).chain(numbers.filter(is_child)).collect()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, which may hold anything: the state, then the parent.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

/// In MB; 0 for a process that has just ended.
fn resident(pid: u32) -> f64 {
    let kilobytes = field(pid, "VmRSS:").and_then(|size| size.trim_end_matches(" kB").parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) / 1e3
}

fn field(pid: u32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().to_owned())
}
