//! The end of a process that uses a GPU.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the driver was opened.
static OPENED: AtomicBool = AtomicBool::new(false);

/// Whether this process ever had a context.
static SERVED: AtomicBool = AtomicBool::new(false);

/// Whether the driver refused a new context because of an error that another one had.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether the driver serves this process no more, as after a kernel that reached for memory that is not its own: only a new program can
/// use the GPU again.
pub fn needs_new_process() -> bool {
    REFUSED.load(Ordering::Relaxed)
}

/// Notes that the driver gave this process a context.
pub(super) fn served() {
    SERVED.store(true, Ordering::Relaxed);
}

/// Notes that the driver refused a new context because of an earlier error: of this process, if it had one before.
pub(super) fn refused() {
    REFUSED.store(SERVED.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Notes that the driver has been opened.
pub(super) fn opened() {
    OPENED.store(true, Ordering::Relaxed);
}

/// Ends the process. If the driver was opened, no exit handlers run: the driver's own would free memory that engines still use on other threads.
/// What they hold goes back to the system with the process.
pub fn end_process(code: u8) -> ! {
    if OPENED.load(Ordering::Relaxed) {
        // SAFETY: it does not return, and the caller has flushed what is to be read.
        unsafe { libc::_exit(code.into()) }
    }
    exit(code.into())
}
