//! What a disk area holds and has done, for logs and metrics.

use std::time::Duration;

/// What is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stock {
    /// Blocks that can be fetched.
    pub blocks: u64,
    /// Tokens they stand for.
    pub tokens: u64,
    /// Bytes of their contents.
    pub bytes: u64,
}

/// What has happened since the area was opened. Every field only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks written, and bytes of them; blocks carried over from reclaimed segments not included.
    pub written_blocks: u64,
    /// Bytes of the blocks written.
    pub written_bytes: u64,
    /// Time spent writing, waiting for the disk included, waiting for `write_speed` not.
    pub write_time: Duration,
    /// Blocks read and found intact.
    pub read_blocks: u64,
    /// Bytes of the blocks read.
    pub read_bytes: u64,
    /// Time that reader threads spent reading and checking.
    pub read_time: Duration,
    /// Blocks that were asked for and came from the queue of blocks to be written.
    pub read_from_queue: u64,
    /// Blocks that were asked for and were gone, unreadable or damaged.
    pub read_failures: u64,
    /// Blocks among them whose bytes were not what was written.
    pub damaged_blocks: u64,
    /// Writes that the system refused.
    pub write_failures: u64,
    /// Blocks not stored because the queue was full.
    pub refused_full: u64,
    /// Blocks not stored because writing was stopped.
    pub refused_stopped: u64,
    /// Blocks that were queued and then not written (a failed write, no room).
    pub dropped_blocks: u64,
    /// Blocks reclaimed to make room.
    pub reclaimed_blocks: u64,
    /// Blocks carried over from a reclaimed segment because they are pinned or were used lately.
    pub carried_blocks: u64,
}

/// What a disk area holds, does and can't do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// What can be fetched, of all shelves.
    pub stock: Stock,
    /// Segment files.
    pub segments: u64,
    /// Bytes of all files; never above the size that was allowed.
    pub file_bytes: u64,
    /// The size that was allowed.
    pub size: u64,
    /// Bytes waiting to be written.
    pub queued_bytes: u64,
    /// Blocks waiting to be written.
    pub queued_blocks: u64,
    /// Bytes of blocks on disk that are pinned.
    pub pinned_bytes: u64,
    /// Fetches that wait for blocks.
    pub fetches: u64,
    /// Set while nothing is written because the folder belongs to another process or can't be written to: why.
    pub read_only: Option<String>,
    /// Set while writing has stopped for a time (disk full, errors): why.
    pub stopped: Option<String>,
    /// What has happened so far.
    pub counters: Counters,
}
