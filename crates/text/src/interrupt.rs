//! A flag that asks long work to stop, because nobody waits for its result any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks work to stop at its next opportunity. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Asks the work to stop. It can't be taken back.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the work should stop.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
