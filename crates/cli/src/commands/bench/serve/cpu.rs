//! How much of a processor this program itself uses: a load generator that is busy measures itself.

use std::time::Duration;

/// Time this process has spent on processors; none where the system does not tell.
pub fn used() -> Duration {
    #[cfg(unix)]
    {
        use nix::sys::resource::{UsageWho, getrusage};
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            let times = [usage.user_time(), usage.system_time()];
            let micros: i64 = times.iter().map(|time| time.tv_sec() * 1_000_000 + time.tv_usec()).sum();
            return Duration::from_micros(micros.unsigned_abs());
        }
    }
    Duration::ZERO
}
