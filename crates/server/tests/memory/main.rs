//! What a body costs: the memory that a request takes at its peak, against the bytes that were sent. In a test binary of
//! its own: it counts every byte of the process.

mod app;
mod bodies;
mod counting;
#[path = "../../../../tests/default_models.rs"]
mod default_models;
mod texts;

use tokio::sync::{Mutex, MutexGuard};

/// One test at a time: others would be counted as well.
async fn my_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}
