//! What a block holds, as a name: the chained hash of its tokens and of all tokens before it.
//!
//! ```text
//! root = H(ROOT, salt) ─> h0 = H(BLOCK, root, tokens 0..32) ─> h1 = H(BLOCK, h0, tokens 32..64) ─> ...
//! ```
//! The tags ROOT and BLOCK keep a salt from being read as a block: no salt that a client chooses begins a chain in the
//! middle of another's.
//!
//! Two blocks have the same hash only if they hold the same tokens after the same prefix of the same tenant, so that
//! one stands for the other. SHA-256 makes that true even for someone who tries to make it false: a collision would
//! show one client another client's prompt.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use ropeway_executor::BlockId;
use sha2::{Digest, Sha256};

use crate::tokens::Tokens;

/// First byte of what is hashed for the beginning of a chain.
const ROOT: u8 = 0;

/// First byte of what is hashed for a block.
const BLOCK: u8 = 1;

/// Name of a full block's content, prefix included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHash([u8; 32]);

impl BlockHash {
    /// Where a chain begins: requests share cached blocks only under the same salt.
    pub fn root(salt: &[u8]) -> Self {
        Self(Sha256::new_with_prefix([ROOT]).chain_update(salt).finalize().into())
    }

    /// The hash itself.
    pub fn bytes(self) -> [u8; 32] {
        self.0
    }

    /// The block with this hash, noted earlier by [`BlockHash::bytes`].
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The hash of a block that holds the tokens of these parts and follows the block named by `self`.
    pub fn then(self, parts: &[&[u32]]) -> Self {
        let mut hasher = Sha256::new_with_prefix([BLOCK]);
        hasher.update(self.0);
        for token in parts.iter().copied().flatten() {
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

/// The hashes of a sequence's full blocks, as far as its tokens are known. Those of the prompt are shared by all
/// sequences of a request.
#[derive(Clone, Debug)]
pub struct Chain {
    root: BlockHash,
    prompt: Arc<[BlockHash]>,
    answer: Vec<BlockHash>,
    block_tokens: usize,
}

impl Chain {
    /// The chain of a prompt.
    pub fn new(root: BlockHash, block_tokens: usize, prompt: &[u32]) -> Self {
        let next = |parent: &mut BlockHash, block: &[u32]| {
            *parent = parent.then(&[block]);
            Some(*parent)
        };
        let prompt = prompt.chunks_exact(block_tokens).scan(root, next).collect();
        Self { root, prompt, answer: Vec::new(), block_tokens }
    }

    /// The hashes of the prompt's full blocks.
    pub fn prompt(&self) -> &[BlockHash] {
        &self.prompt
    }

    /// The same, with room for the blocks of an answer: a step allocates nothing.
    pub fn with_room(mut self, tokens: usize) -> Self {
        self.answer.reserve(tokens.div_ceil(self.block_tokens));
        self
    }

    /// Hashes the blocks that became full.
    pub fn extend(&mut self, tokens: &Tokens) {
        while (self.len() + 1) * self.block_tokens <= tokens.len() {
            let block = self.len() * self.block_tokens..(self.len() + 1) * self.block_tokens;
            let parent = self.len().checked_sub(1).and_then(|last| self.get(last)).unwrap_or(self.root);
            self.answer.push(parent.then(&tokens.range(block)));
        }
    }

    /// The hash of block `index`, if it is full.
    pub fn get(&self, index: usize) -> Option<BlockHash> {
        let own = |index: usize| self.answer.get(index - self.prompt.len());
        self.prompt.get(index).or_else(|| own(index)).copied()
    }

    fn len(&self) -> usize {
        self.prompt.len() + self.answer.len()
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
        let all: Vec<u32> = (0..11).collect();
        let mut tokens = Tokens::new(Arc::from(&all[..5]), 6);
        let mut grown = Chain::new(BlockHash::root(b""), 4, tokens.prompt());
        assert!(grown.get(0).is_some() && grown.get(1).is_none());
        tokens.extend(&all[5..]);
        grown.extend(&tokens);
        let whole = Chain::new(BlockHash::root(b""), 4, &all);
        assert_eq!((grown.get(0), grown.get(1), grown.get(2)), (whole.get(0), whole.get(1), None));
    }

    #[test]
    fn the_same_tokens_after_another_prefix_or_under_another_salt_have_another_name() {
        let root = BlockHash::root(b"");
        assert_ne!(root.then(&[&[1, 2]]).then(&[&[3, 4]]), root.then(&[&[2, 1]]).then(&[&[3, 4]]));
        assert_ne!(root.then(&[&[1, 2]]), BlockHash::root(b"tenant").then(&[&[1, 2]]));
        assert_eq!(root.then(&[&[1], &[2]]), BlockHash::root(b"").then(&[&[1, 2]]));
    }

    #[test]
    fn no_salt_begins_in_the_middle_of_another_chain() {
        let parent = BlockHash::root(b"tenant");
        let block = parent.then(&[&[7, 8]]);
        let tokens = [7_u32, 8].map(u32::to_le_bytes).concat();
        let tail = [&parent.0[..], &tokens].concat();
        for salt in [tail.clone(), [&[BLOCK][..], &tail].concat(), [&[ROOT][..], &tail].concat()] {
            assert_ne!(BlockHash::root(&salt), block);
        }
    }
}
