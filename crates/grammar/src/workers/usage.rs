//! What a worker may use, as its system enforces it, and what it has used. Systems that tell neither leave it to the
//! time on the clock, which whoever started the worker watches.

use std::time::Duration;

use super::limits;

/// Bounds the data of this process. Nothing that it does is worth a core dump.
pub(super) fn restrict() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let exactly = |value| Rlimit { current: Some(value), maximum: Some(value) };
        // Where a limit is lower already, that one holds.
        let _ = setrlimit(Resource::Data, exactly(limits::DATA));
        let _ = setrlimit(Resource::Core, exactly(0));
    }
}

/// A thread of this process, by the system's name.
#[derive(Clone, Copy)]
pub(super) struct ThreadName {
    #[cfg(target_os = "linux")]
    id: rustix::thread::Pid,
}

impl ThreadName {
    /// The calling thread.
    pub(super) fn own() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            id: rustix::thread::gettid(),
        }
    }

    /// Lowers its priority for good: models that answer get about three times as much of a processor that both want.
    pub(super) fn give_way(self) {
        #[cfg(target_os = "linux")]
        {
            let _ = rustix::process::setpriority_process(Some(self.id), 5);
        }
    }
}

/// Lets the system end this process when it has used twice the processor time of a grammar from now on, in case that
/// it no longer looks at it.
pub(super) fn restrict_time() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let until = (time() + 2 * limits::TIME).as_secs() + 1;
        let maximum = getrlimit(Resource::Cpu).maximum;
        let _ = setrlimit(Resource::Cpu, Rlimit { current: Some(until), maximum });
    }
}

/// Processor time of all threads of this process.
pub(super) fn time() -> Duration {
    #[cfg(unix)]
    {
        use rustix::time::{ClockId, clock_gettime};
        Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
    }
    #[cfg(not(unix))]
    Duration::ZERO
}

/// Bytes of memory that this process holds at the moment.
pub(super) fn memory() -> usize {
    const PAGE: usize = 4096;
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).map_or(0, |pages| pages * PAGE)
}

/// Processor time of another process, where the system tells it.
pub(super) fn time_of(process: u32) -> Option<Duration> {
    /// What Linux calls `USER_HZ`, on every machine.
    const TICKS_PER_SECOND: u64 = 100;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program stands in brackets and may hold anything; times are the 12th and 13th field after it.
    let mut times = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let mut ticks = || times.next()?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks()? + ticks()?) * 1000 / TICKS_PER_SECOND))
}
