//! Names of prompts' beginnings, so that requests with the same one meet at the upstream that has it cached.
//!
//! ```text
//! h0 = H(salt) ─> h1 = H(h0, block 0) ─> h2 = H(h1, block 1) ─> ...
//! ```
//! They only choose an upstream: a collision costs time and shows nobody anything. What is shared is decided by the upstream,
//! which is told the salt.

use std::sync::Arc;

use ropeway_engine::ClientId;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::dispatch::BLOCK_TOKENS;

/// Bytes of a text that count as a block: about as many as the tokens of one have.
const BLOCK_BYTES: usize = 4 * BLOCK_TOKENS;

/// Blocks that are named: the beginning decides, and a prompt of any length costs the router the same.
const MOST_BLOCKS: usize = 1024;

/// A client's session as one name; none if it has not said that it has one.
pub fn session_of(client: ClientId) -> Option<u64> {
    let ClientId { account, session } = client;
    (session != 0).then(|| xxh3_64_with_seed(&session.to_le_bytes(), account))
}

/// The names of a prompt's full blocks of tokens, first to last.
pub fn prefix_of_tokens(salt: &[u8], prompt: &[u32]) -> Arc<[u64]> {
    let mut bytes = [0; 4 * BLOCK_TOKENS];
    let blocks = prompt.chunks_exact(BLOCK_TOKENS).take(MOST_BLOCKS);
    let mut name = xxh3_64_with_seed(salt, 0);
    let named = blocks.map(|block| {
        for (bytes, token) in bytes.chunks_exact_mut(4).zip(block) {
            bytes.copy_from_slice(&token.to_le_bytes());
        }
        name = xxh3_64_with_seed(&bytes, name);
        name
    });
    named.collect()
}

/// The same for a prompt that is known as text only.
pub fn prefix_of_text(salt: &[u8], text: &[u8]) -> Arc<[u64]> {
    let mut name = xxh3_64_with_seed(salt, 1);
    let named = text.chunks_exact(BLOCK_BYTES).take(MOST_BLOCKS).map(|block| {
        name = xxh3_64_with_seed(block, name);
        name
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_beginnings_have_equal_names_until_they_part_and_none_under_another_salt() {
        let long: Vec<u32> = (0..BLOCK_TOKENS as u32 * 4 + 3).collect();
        let mut other = long.clone();
        other[BLOCK_TOKENS * 2] += 1;
        let (a, b) = (prefix_of_tokens(b"", &long), prefix_of_tokens(b"", &other));
        assert_eq!(a.len(), 4);
        assert_eq!(a[..2], b[..2]);
        assert!(a[2] != b[2] && a[3] != b[3]);
        assert!(prefix_of_tokens(b"tenant", &long).iter().all(|name| !a.contains(name)));
    }

    #[test]
    fn texts_are_named_by_their_bytes() {
        let text = vec![b'a'; 3 * BLOCK_BYTES + 1];
        assert_eq!(prefix_of_text(b"", &text).len(), 3);
        assert_eq!(prefix_of_text(b"", &text[..2 * BLOCK_BYTES])[..], prefix_of_text(b"", &text)[..2]);
    }
}
