//! The only time the engine knows.

use std::time::{Duration, Instant};

/// Tells how long ago the engine started. Never goes backwards.
pub trait Clock: Send + Sync {
    /// Time since the start.
    fn now(&self) -> Duration;
}

/// The machine's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}
