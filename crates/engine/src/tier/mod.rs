//! Where blocks go when their memory is needed, and where they come back from.
//!
//! ```text
//! named for a moment, or about to be evicted ── export ──> Tier::store        written behind, by others
//! a prompt's turn: memory, then Tier::holds  ── fetch ───> Transfer::poll ── import ──> an ordinary cached block
//! ```
//! The engine copies between blocks and buffers and decides what is worth it ([`keeper`], [`loading`]); what a tier is made
//! of, it does not know. A tier may be slow, lose blocks and refuse them at any time. What it must never do is give
//! other bytes than were stored under a name.
//!
//! A sequence whose blocks are on their way holds the memory for them and takes no part in steps; everyone else goes on.

mod disk;
mod keeper;
mod loading;

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::kv::BlockHash;

pub(crate) use keeper::Keeper;
pub(crate) use loading::Loading;

/// A place for blocks below memory. Its methods are called by the engine's thread between two steps: none may wait.
pub trait Tier: fmt::Debug + Send + Sync {
    /// Whether a block could be fetched.
    fn holds(&self, hash: BlockHash) -> bool;

    /// Takes a block, whose bytes `fill` writes; it is not asked to where there is no room or no need.
    fn store(&self, hash: BlockHash, fill: &mut dyn FnMut(&mut [u8])) -> Stored;

    /// Begins to fetch blocks, in this order.
    fn fetch(&self, hashes: Vec<BlockHash>) -> Box<dyn Transfer>;

    /// What is stored under this name is not to be trusted.
    fn forget(&self, hash: BlockHash);

    /// Keeps blocks from being given up for others until then, whether they are there yet or not, in place of those that
    /// had this pin before. How many of them, from the first on, may be kept so.
    fn pin(&self, pin: &str, hashes: &[BlockHash], until: SystemTime) -> usize {
        let _ = (pin, hashes, until);
        0
    }

    /// Undoes [`Tier::pin`].
    fn unpin(&self, pin: &str) {
        let _ = pin;
    }

    /// Waits until what was stored is safe, at most so long. For the end of an engine only.
    fn flush(&self, within: Duration);
}

/// What became of a block that was to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It is there, or will be soon.
    Kept,
    /// Too much waits to be written; later there may be room.
    Full,
    /// Nothing is taken at the moment.
    Refused,
}

/// Blocks on their way. Dropping it cancels.
pub trait Transfer: Send {
    /// The next block: `take` sees its bytes if it has arrived.
    fn poll(&mut self, take: &mut dyn FnMut(&[u8])) -> Arrival;
}

/// What a transfer has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The next block, which was shown.
    Block,
    /// Nothing yet.
    Pending,
    /// Nothing more is coming.
    Over,
}

/// What passed between memory and the tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierTotals {
    /// Tokens whose blocks came back.
    pub fetched_tokens: u64,
    /// Transfers begun.
    pub transfers: u64,
    /// Transfers that ended before all was there.
    pub failed_transfers: u64,
    /// Time that sequences waited for transfers.
    pub fetching: Duration,
    /// Blocks handed to the tier.
    pub stored_blocks: u64,
    /// Blocks that were evicted and not kept, because the tier did not take them.
    pub lost_blocks: u64,
    /// Time that the engine's thread spent copying blocks in either direction.
    pub copying: Duration,
    /// Sequences that wait for blocks now.
    pub waiting: usize,
}
