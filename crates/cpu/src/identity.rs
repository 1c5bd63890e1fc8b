//! What keys and values depend on besides the tokens: whoever keeps blocks beyond the life of an executor must not give them
//! to one that would have computed others.

use ropeway_executor::{ExecutorError, sample_block};
use sha2::{Digest, Sha256};

use crate::CpuExecutor;

/// Raised whenever blocks are laid out in another way.
const LAYOUT: u32 = 1;

impl CpuExecutor {
    /// A digest of everything that decides the bits of a block: the weights (by their files' digest), the model as it is run,
    /// the format of keys and values, and, because no list of such things is ever complete, the block that this program
    /// computes for some tokens on this CPU. Nothing may have been computed before that is still needed.
    pub fn kv_identity(&mut self, weights: &[u8; 32]) -> Result<[u8; 32], ExecutorError> {
        let mut digest = Sha256::new_with_prefix("ropeway keys and values");
        digest.update(LAYOUT.to_le_bytes());
        digest.update(weights);
        // Rope scaling and window included. Another spelling after an update costs a cold start, nothing else.
        digest.update(format!("{:?} {:?}", self.decoder().spec, self.kv_layout()));
        digest.update(sample_block(self)?);
        Ok(digest.finalize().into())
    }
}
