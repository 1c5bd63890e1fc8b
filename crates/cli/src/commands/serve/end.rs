//! The end of a server: asked for by a signal, and certain.
//!
//! ```text
//! SIGTERM or SIGINT       pulls stop, requests finish (see `ropeway_server::serve`)
//! drain time              requests that still run are ended with a last event
//! drain time + GRACE      the process ends with 0, whatever still holds it up
//! a second signal         the process ends at once, with 130 (SIGINT) or 143 (SIGTERM)
//! ```
//! Nothing here runs on the server's own threads: all of them may be busy with work that never ends.

use std::io;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::interrupt;
use crate::output::tell;

/// What an orderly end takes after the drain time, and less than the second that is promised.
const GRACE: Duration = Duration::from_millis(900);

/// Listens for signals; the result is done when the server shall begin to end.
pub fn hear(drain: Duration) -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let (begin, begun) = oneshot::channel();
    interrupt::on_end(move |signal| {
        interrupt::end_within(drain + GRACE, || 0);
        tracing::info!(target: "serve", ?signal, "finishing what runs; a second signal ends it at once");
        // First, so that no child process is left behind by a server that has nothing else to wait for.
        interrupt::pulls().cancel();
        let _ = begin.send(());
    })?;
    // Without a listener there is no word to end, and none is made up.
    Ok(async move {
        if begun.await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}

/// The server could not start and ends by itself, as certainly.
pub fn fail(drain: Duration, failure: &Failure) {
    let text = failure.to_string();
    interrupt::end_within(drain + GRACE, move || {
        tell(&format!("error: {text}"));
        1
    });
}
