//! A shelf: the blocks of one model in one format.

use std::time::SystemTime;

use crate::Key;
use crate::fetch::{Fetch, Wake};
use crate::status::Stock;

/// What the blocks of a shelf have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShelfSpec {
    /// Digest of everything that makes one model's blocks useless to another: weights, format, rope and the like.
    pub identity: [u8; 32],
    /// For people: model name and format. Cut to 256 bytes on disk.
    pub label: String,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Tokens of a block.
    pub block_tokens: usize,
}

/// What became of a block that was to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It will be written; it can be fetched from now on.
    Queued,
    /// It is on disk or about to be; it counts as used just now.
    Known,
    /// Too many bytes wait to be written: try again later.
    Full,
    /// Nothing is written now: see [`Status`](crate::Status) for the reason.
    Stopped,
}

/// The blocks of one model in one format. Cheap to clone.
#[derive(Clone)]
pub struct Shelf {
    spec: ShelfSpec,
}

impl Shelf {
    pub(crate) fn new(spec: ShelfSpec) -> Self {
        Self { spec }
    }

    /// What the blocks have in common.
    pub fn spec(&self) -> &ShelfSpec {
        &self.spec
    }

    /// What of this shelf is on disk.
    pub fn stock(&self) -> Stock {
        Stock::default()
    }

    /// Whether a block is on disk or waiting to be written. Looks in memory only.
    pub fn holds(&self, _key: &Key) -> bool {
        false
    }

    /// How many of the keys in a row, from the first on, could be fetched. Looks in memory only.
    pub fn leading(&self, keys: &mut dyn Iterator<Item = Key>) -> usize {
        keys.take_while(|key| self.holds(key)).count()
    }

    /// Queues a block to be written. `fill` writes its bytes (`block_bytes` of them) into staging memory; it is only
    /// called when the result is [`Stored::Queued`].
    pub fn store(&self, _key: Key, _fill: impl FnOnce(&mut [u8])) -> Stored {
        Stored::Stopped
    }

    /// Reads blocks in the background, in order. `wake` is called whenever [`Fetch::poll`] may have something new, by a
    /// thread of this crate: it must be quick. Dropping the fetch cancels it.
    pub fn fetch(&self, _keys: Vec<Key>, _wake: Wake) -> Fetch {
        Fetch {}
    }

    /// The blocks count as used just now.
    pub fn touch(&self, _keys: &[Key]) {}

    /// Makes a block unknown: it was found wrong, or must not be used again.
    pub fn forget(&self, _key: &Key) {}

    /// Keeps blocks from being reclaimed until then, replacing what was pinned under this name. Blocks may be pinned
    /// before they are stored. Returns how many of the keys, from the first on, are within what may be pinned.
    pub fn pin(&self, _name: &str, _keys: &[Key], _until: SystemTime) -> usize {
        0
    }

    /// Undoes [`Shelf::pin`].
    pub fn unpin(&self, _name: &str) {}
}
