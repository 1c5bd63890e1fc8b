//! The way to stop long work, because nobody waits for its result any more, and to have it pause in between.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::TextError;

/// Asks work to stop at its next opportunity. Clones share the flag.
///
/// Work looks at it every few microseconds of its time, at the most every half of a millisecond.
#[derive(Clone, Default)]
pub struct Interrupt {
    raised: Arc<AtomicBool>,
    pause: Option<fn()>,
}

impl Interrupt {
    /// An interrupt that also calls `pause` at every opportunity to stop, on the thread that works: it may sleep there, so
    /// that the work gives way to others.
    pub fn with_pauses(pause: fn()) -> Self {
        Self { pause: Some(pause), ..Self::default() }
    }

    /// Asks the work to stop. It can't be taken back.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::Relaxed);
    }

    /// Whether the work should stop.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    /// An opportunity to pause, and to stop: fails if the work should.
    pub fn check(&self) -> Result<(), TextError> {
        if let Some(pause) = self.pause {
            pause();
        }
        if self.is_raised() { Err(TextError::Interrupted) } else { Ok(()) }
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interrupt").field(&self.is_raised()).finish()
    }
}
