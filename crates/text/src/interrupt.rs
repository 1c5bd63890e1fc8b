//! A flag that asks long work to stop, because nobody waits for its result any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::TextError;

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

    /// Fails if the work should stop.
    pub(crate) fn check(&self) -> Result<(), TextError> {
        if self.is_raised() { Err(TextError::Interrupted) } else { Ok(()) }
    }
}
