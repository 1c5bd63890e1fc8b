//! No faster than allowed.

use std::time::{Duration, Instant};

/// When the next write may begin.
#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes a second.
    speed: Option<u64>,
    next: Instant,
}

impl Pace {
    pub(super) fn new(speed: Option<u64>, now: Instant) -> Self {
        Self { speed: speed.map(|speed| speed.max(1)), next: now }
    }

    /// From when on a write is allowed.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// So many bytes were written from that moment on.
    pub(super) fn wrote(&mut self, bytes: u64, now: Instant) {
        if let Some(speed) = self.speed {
            let takes = Duration::from_secs_f64(bytes as f64 / speed as f64);
            // Time that nothing was written in is not made up for.
            self.next = self.next.max(now) + takes.min(LONGEST);
        }
    }

    /// Bytes of one write at most, so that a slow pace is even.
    pub(super) fn batch_bytes(&self, usual: u64) -> u64 {
        self.speed.map_or(usual, |speed| usual.min(speed / 4))
    }
}

/// A pace that is slower than a block in this time is not meant.
const LONGEST: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_over_time_stay_at_the_allowed_speed() {
        let start = Instant::now();
        let mut pace = Pace::new(Some(1000), start);
        let mut now = start;
        for _ in 0..10 {
            now = now.max(pace.next());
            pace.wrote(500, now);
        }
        assert_eq!(pace.next() - start, Duration::from_secs(5));
    }

    #[test]
    fn a_pause_is_not_made_up_for() {
        let start = Instant::now();
        let mut pace = Pace::new(Some(1000), start);
        pace.wrote(1000, start);
        let later = start + Duration::from_secs(100);
        pace.wrote(1000, later);
        assert_eq!(pace.next(), later + Duration::from_secs(1));
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let start = Instant::now();
        let mut pace = Pace::new(None, start);
        pace.wrote(u64::MAX, start);
        assert_eq!(pace.next(), start);
    }
}
