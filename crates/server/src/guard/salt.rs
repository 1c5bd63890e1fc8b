//! Which requests share cached prompts: the salt that a request's block hashes begin with.
//!
//! ```text
//! salt = TAG, part(scope), part(cache_salt)
//! part = 0                          nothing: the cache that everyone shares, or no cache_salt
//!      | 1, length (8 bytes), bytes
//! ```
//! Every part has its length before it, so that two different pairs never give the same bytes: what a client writes into
//! `cache_salt` can't reach the prompts of another key.

use sha2::{Digest, Sha256};

/// The longest `cache_salt`: room for any identifier or hash.
pub const LONGEST: usize = 1024;

/// What all salts of this layout begin with.
const TAG: &[u8] = b"ropeway cache salt 1";

/// What is hashed before a key's digest, so that the digest itself is not handed on.
const KEY: &[u8] = b"ropeway cache scope of key";

/// Whose cached prompts a client shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheScope {
    /// Those of everyone without a scope of their own.
    #[default]
    Shared,
    /// Those of the same API key.
    Own([u8; 32]),
}

impl CacheScope {
    /// The scope of the key with this digest.
    pub fn of_key(digest: &[u8; 32]) -> Self {
        CacheScope::Own(Sha256::new_with_prefix(KEY).chain_update(digest).finalize().into())
    }

    /// The salt of a request in this scope, divided further by what the client sent as `cache_salt`.
    pub fn salt(self, own: Option<&str>) -> Vec<u8> {
        let mut salt = TAG.to_vec();
        match self {
            CacheScope::Shared => push(&mut salt, None),
            CacheScope::Own(scope) => push(&mut salt, Some(&scope)),
        }
        push(&mut salt, own.map(str::as_bytes));
        salt
    }
}

fn push(salt: &mut Vec<u8>, part: Option<&[u8]>) {
    let Some(bytes) = part else { return salt.push(0) };
    salt.push(1);
    salt.extend((bytes.len() as u64).to_le_bytes());
    salt.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_pairs_of_scope_and_cache_salt_give_the_same_bytes() {
        let scopes = [CacheScope::Shared, CacheScope::of_key(&[0; 32]), CacheScope::of_key(&[1; 32])];
        // Among them what imitates a part, and the beginning of another salt.
        let imitation = "\u{1}\u{20}\0\0\0\0\0\0\0".to_owned() + &"\0".repeat(32) + "\0";
        let salts = [None, Some(""), Some("\0"), Some("\u{1}"), Some("a"), Some("aa"), Some(&imitation)];
        let mut all: Vec<_> = scopes.iter().flat_map(|scope| salts.map(|salt| scope.salt(salt))).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn the_same_key_and_cache_salt_give_the_same_bytes() {
        let scope = || CacheScope::of_key(&[7; 32]);
        assert_eq!(scope().salt(Some("x")), scope().salt(Some("x")));
    }
}
