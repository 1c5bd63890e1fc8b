//! The end of a process that uses a GPU.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the driver was opened.
static OPENED: AtomicBool = AtomicBool::new(false);

/// Notes that the driver has been opened.
pub(super) fn opened() {
    OPENED.store(true, Ordering::Relaxed);
}

/// Ends the process. With the driver opened nothing is run at its end: the driver's own goodbye would take memory from under engines
/// that still use it on other threads. What they hold goes back to the system with the process.
pub fn end_process(code: u8) -> ! {
    if OPENED.load(Ordering::Relaxed) {
        // SAFETY: it does not return, and the caller has flushed what is to be read.
        unsafe { libc::_exit(code.into()) }
    }
    exit(code.into())
}
