//! How the long lane gives way: it works for a moment, and rests while models compute.
//!
//! ```text
//! nobody is served    work work work work
//! somebody is         work rest rest work rest rest
//! ```
//! Low priority alone is not enough: a worker of the model that waits for another lets whoever is there have the core for
//! a whole slice of the scheduler, which is longer than many a step.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Work between two rests: shorter than a slice of any scheduler.
const SLICE: Duration = Duration::from_millis(1);

/// How long a rest is, in multiples of the work before it: the lane takes a third of a core at most.
const REST: u32 = 2;

/// The longest rest: a slice may have taken long only because the core was taken.
const LONGEST_REST: Duration = Duration::from_millis(8);

/// Opportunities between two looks at the clock, which costs as much as some bytes of text.
const OPPORTUNITIES_PER_LOOK: u32 = 16;

/// Requests that models compute.
static SERVED: AtomicUsize = AtomicUsize::new(0);

/// A request that a model computes: while there is one, long work rests in between.
pub struct Served(());

impl Served {
    /// From now on, until it is dropped.
    pub fn begin() -> Self {
        SERVED.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        SERVED.fetch_sub(1, Ordering::Relaxed);
    }
}

thread_local! {
    /// Since when this thread has worked without a rest.
    static WORKING_SINCE: Cell<Instant> = Cell::new(Instant::now());
    static OPPORTUNITIES: Cell<u32> = const { Cell::new(0) };
}

/// This thread was idle and begins to work.
pub fn begin() {
    WORKING_SINCE.set(Instant::now());
}

/// An opportunity to rest: cheap enough for every word of a text.
pub fn opportunity() {
    let count = OPPORTUNITIES.get() + 1;
    OPPORTUNITIES.set(count % OPPORTUNITIES_PER_LOOK);
    if count == OPPORTUNITIES_PER_LOOK {
        rest_if_due();
    }
}

/// Rests if this thread has worked for long enough.
pub fn rest_if_due() {
    let rest = due(WORKING_SINCE.get().elapsed(), SERVED.load(Ordering::Relaxed));
    if let Some(rest) = rest {
        std::thread::sleep(rest);
        begin();
    }
}

/// The rest that is due after so much work, beside so many requests that models compute.
fn due(worked: Duration, served: usize) -> Option<Duration> {
    if worked < SLICE {
        return None;
    }
    Some(if served == 0 { Duration::ZERO } else { (worked * REST).min(LONGEST_REST) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_rests_twice_as_long_as_it_took_while_somebody_is_served() {
        assert_eq!(due(SLICE / 2, 1), None);
        assert_eq!(due(SLICE, 1), Some(SLICE * 2));
        assert_eq!(due(SLICE * 2, 3), Some(SLICE * 4));
        assert_eq!(due(SLICE, 0), Some(Duration::ZERO), "nobody to give way to");
        assert_eq!(due(SLICE * 1000, 1), Some(LONGEST_REST));
    }
}
