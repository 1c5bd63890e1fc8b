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
//! ```no_run
//! # use std::{sync::Arc, time::Duration};
//! # use ropeway_kvdisk::{Disk, FetchPoll, Options, ShelfSpec};
//! # fn main() -> Result<(), ropeway_kvdisk::OpenError> {
//! let disk = Disk::open(Options::new("kv", 16 << 30))?;
//! let spec = ShelfSpec { identity: [1; 32], label: "model, q16".into(), block_bytes: 737_280, block_tokens: 32 };
//! let shelf = disk.shelf(spec);
//! let key = [7; 32];
//! shelf.store(key, |bytes| bytes.fill(1));
//! let mut fetch = shelf.fetch(vec![key], Arc::new(|| { /* wake the engine */ }));
//! if let FetchPoll::Ready(block) = fetch.poll() {
//!     assert_eq!(block.len(), 737_280);
//! }
//! disk.close(Duration::from_secs(5));
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//!
//! - `disk`, `shelf`, `fetch`: what callers have; `shared`: what their threads, the writer and the readers share.
//! - `index`: which blocks are where, in memory. `load`: from files to an index.
//! - `writer`: the queue into segments, room for them, a look at the folder now and then.
//! - `reader`: reads for fetches, in turn.
//! - `folder`, `format`: the files, and what is in them. `staging`: aligned memory. `geometry`: how large segments are.
//! - [`inspect`]: a folder as people see it.
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
