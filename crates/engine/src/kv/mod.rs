//! KV memory as the engine sees it: which blocks are whose. What is in them is the executor's business.

pub mod pool;
pub mod prefix;
pub mod table;

pub use pool::{Counts, Named, News, Pool};
pub use prefix::{BlockHash, Chain};
pub use table::{BlockTable, OutOfBlocks};

#[cfg(test)]
mod tests;
