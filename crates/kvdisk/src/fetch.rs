//! Blocks on their way from disk.

use std::ops::Deref;
use std::sync::Arc;

/// Called when something arrives.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Blocks that are being read, in the order they were asked for. Dropping it cancels what is left.
pub struct Fetch {}

/// What a fetch has now.
#[derive(Debug)]
pub enum FetchPoll {
    /// The next block in order, verified.
    Ready(FetchedBlock),
    /// The next block has not arrived.
    Pending,
    /// The next block is gone or damaged; neither it nor the rest is coming.
    Failed,
    /// All blocks have been handed out.
    Done,
}

impl Fetch {
    /// The next block, if it has arrived. Never waits.
    pub fn poll(&mut self) -> FetchPoll {
        FetchPoll::Failed
    }
}

/// A block's bytes in staging memory, which is used again when this is dropped: copy and drop soon.
#[derive(Debug)]
pub struct FetchedBlock {
    bytes: Vec<u8>,
}

impl Deref for FetchedBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
