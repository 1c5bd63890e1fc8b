//! The disk area below the block pool: named blocks of bytes that outlive the process.
//!
//! ```text
//! engine thread   store(key, fill) --> staging buffers --> writer thread --> segment files (append-only)
//!                 holds, leading   --> index in memory
//!                 fetch(keys)      --> reader threads  --> large reads, checksums --> poll(): blocks in order
//! ```
//!
//! A block is named by a [`Key`] (the chained hash of its tokens) and belongs to a [`Shelf`]: blocks of one model and
//! format, all of the same size. What comes back is exactly what was stored under that key, or nothing; the folder may
//! be damaged, truncated, deleted or shared at any moment. Nothing here knows models, engines or requests.
//!
//! No call of the engine's thread waits for a file: `holds`, `leading`, `store` and `poll` touch memory only.

mod disk;
mod fetch;
mod folder;
mod format;
mod geometry;
mod index;
pub mod inspect;
mod load;
mod options;
mod reader;
mod shared;
mod shelf;
mod staging;
mod status;
mod writer;

pub use disk::Disk;
pub use fetch::{Fetch, FetchPoll, FetchedBlock, Wake};
pub use options::{OpenError, Options};
pub use shelf::{Shelf, ShelfSpec, Stored};
pub use status::{Counters, Status, Stock};

/// The name of a block: a digest of everything that determines its bytes.
pub type Key = [u8; 32];
