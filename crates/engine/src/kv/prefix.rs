//! What a block holds, as a name: the chained hash of its tokens and of all tokens before it.
//!
//! ```text
//! salt ─> h0 = H(salt, tokens 0..32) ─> h1 = H(h0, tokens 32..64) ─> ...
//! ```
//! Two blocks have the same hash only if they hold the same tokens after the same prefix of the same tenant, so that
//! one stands for the other. SHA-256 makes that true even for someone who tries to make it false: a collision would
//! show one client another client's prompt.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use ropeway_executor::BlockId;
use sha2::{Digest, Sha256};

/// Name of a full block's content, prefix included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHash([u8; 32]);

impl BlockHash {
    /// Where a chain begins: requests share cached blocks only under the same salt.
    pub fn root(salt: &[u8]) -> Self {
        Self(Sha256::digest(salt).into())
    }

    /// The hash of a block that holds `tokens` and follows the block named by `self`.
    pub fn then(self, tokens: &[u32]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.0);
        for token in tokens {
            hasher.update(token.to_le_bytes());
        }
        Self(hasher.finalize().into())
    }
}

impl std::hash::Hash for BlockHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        state.write_u64(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
    }
}

/// The hashes of a sequence's full blocks, as far as its tokens are known.
#[derive(Debug)]
pub struct Chain {
    root: BlockHash,
    hashes: Vec<BlockHash>,
    block_tokens: usize,
}

impl Chain {
    /// The chain of `tokens`, with room for the blocks of `room` tokens.
    pub fn new(root: BlockHash, block_tokens: usize, tokens: &[u32], room: usize) -> Self {
        let hashes = Vec::with_capacity(room.max(tokens.len()) / block_tokens);
        let mut chain = Self { root, hashes, block_tokens };
        chain.extend(tokens);
        chain
    }

    /// Hashes the blocks that became full; `tokens` are all tokens of the sequence.
    pub fn extend(&mut self, tokens: &[u32]) {
        let full = self.hashes.len() * self.block_tokens;
        for block in tokens[full..].chunks_exact(self.block_tokens) {
            let parent = self.hashes.last().copied().unwrap_or(self.root);
            self.hashes.push(parent.then(block));
        }
    }

    /// The hash of block `index`, if it is full.
    pub fn get(&self, index: usize) -> Option<BlockHash> {
        self.hashes.get(index).copied()
    }
}

impl Clone for Chain {
    /// Unlike a derived clone, it keeps the room to grow: sequences grow in steps, and a step allocates nothing.
    fn clone(&self) -> Self {
        let mut hashes = Vec::with_capacity(self.hashes.capacity());
        hashes.extend_from_slice(&self.hashes);
        Self { root: self.root, hashes, block_tokens: self.block_tokens }
    }
}

/// Hashes are uniform already.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken(u64);

impl Hasher for Taken {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// Which block holds what.
pub type Index = HashMap<BlockHash, BlockId, BuildHasherDefault<Taken>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_names_full_blocks_only_and_grows_with_its_tokens() {
        let tokens: Vec<u32> = (0..11).collect();
        let mut grown = Chain::new(BlockHash::root(b""), 4, &tokens[..5], 11);
        assert!(grown.get(0).is_some() && grown.get(1).is_none());
        grown.extend(&tokens);
        let whole = Chain::new(BlockHash::root(b""), 4, &tokens, 11);
        assert_eq!((grown.get(0), grown.get(1), grown.get(2)), (whole.get(0), whole.get(1), None));
    }

    #[test]
    fn the_same_tokens_after_another_prefix_or_under_another_salt_have_another_name() {
        let root = BlockHash::root(b"");
        assert_ne!(root.then(&[1, 2]).then(&[3, 4]), root.then(&[2, 1]).then(&[3, 4]));
        assert_ne!(root.then(&[1, 2]), BlockHash::root(b"tenant").then(&[1, 2]));
        assert_eq!(root.then(&[1, 2]), BlockHash::root(b"").then(&[1, 2]));
    }
}
