//! Ctrl-C as a flag that work looks at between its steps.
//!
//! Only commands that end better by themselves listen: elsewhere Ctrl-C ends the program, as it does everywhere.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C sets the flag instead of ending the program.
pub fn listen() -> Result<(), Failure> {
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed)).map_err(|error| {
        Failure::new(error, "run it where Ctrl-C can be heard, or ask once with `ropeway run MODEL PROMPT`")
    })
}

/// Forgets an earlier Ctrl-C.
pub fn reset() {
    INTERRUPTED.store(false, Ordering::Relaxed);
}

/// Set once Ctrl-C was pressed.
pub fn flag() -> &'static AtomicBool {
    &INTERRUPTED
}
