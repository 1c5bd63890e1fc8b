//! A disk area as a tier.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ropeway_kvdisk::{Fetch, FetchPoll, Shelf};

use super::{Arrival, Stored, Tier, Transfer};
use crate::kv::BlockHash;

impl Tier for Shelf {
    fn holds(&self, hash: BlockHash) -> bool {
        Shelf::holds(self, &hash.bytes())
    }

    fn store(&self, hash: BlockHash, fill: &mut dyn FnMut(&mut [u8])) -> Stored {
        match Shelf::store(self, hash.bytes(), fill) {
            ropeway_kvdisk::Stored::Queued | ropeway_kvdisk::Stored::Known => Stored::Kept,
            ropeway_kvdisk::Stored::Full => Stored::Full,
            ropeway_kvdisk::Stored::Stopped => Stored::Refused,
        }
    }

    fn fetch(&self, hashes: Vec<BlockHash>) -> Box<dyn Transfer> {
        let keys = hashes.into_iter().map(BlockHash::bytes).collect();
        // An engine with nothing else to do looks every millisecond.
        Box::new(Shelf::fetch(self, keys, Arc::new(|| {})))
    }

    fn forget(&self, hash: BlockHash) {
        Shelf::forget(self, &hash.bytes());
    }

    fn pin(&self, pin: &str, hashes: &[BlockHash], until: SystemTime) -> usize {
        let keys: Vec<_> = hashes.iter().copied().map(BlockHash::bytes).collect();
        Shelf::pin(self, pin, &keys, until)
    }

    fn unpin(&self, pin: &str) {
        Shelf::unpin(self, pin);
    }

    fn flush(&self, within: Duration) {
        self.disk().flush(within);
    }
}

impl Transfer for Fetch {
    fn poll(&mut self, take: &mut dyn FnMut(&[u8])) -> Arrival {
        match Fetch::poll(self) {
            FetchPoll::Ready(block) => {
                take(&block);
                Arrival::Block
            }
            FetchPoll::Pending => Arrival::Pending,
            FetchPoll::Failed | FetchPoll::Done => Arrival::Over,
        }
    }
}
