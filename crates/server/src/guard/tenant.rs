//! Whose things are whose: a name for a client that outlives the process, and that tells nothing about a key.
//!
//! ```text
//! a key                    its digest, hashed again
//! this machine, no key     one tenant, whatever the address
//! elsewhere, no key        the account's address
//! ```

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::clients::Owner;

/// What is hashed before a key's digest, so that the digest itself is not handed on.
const KEY: &[u8] = b"ropeway tenant of key";

/// What is hashed for everyone on this machine.
const LOCAL: &[u8] = b"ropeway tenant of this machine";

/// What is hashed before an address.
const ADDRESS: &[u8] = b"ropeway tenant at address";

/// A client, as files name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(u128);

impl Tenant {
    /// The holder of the key with this digest.
    pub fn of_key(digest: &[u8; 32]) -> Self {
        Self::hash(&[KEY, digest])
    }

    /// Whoever asks from this machine without a key.
    pub fn local() -> Self {
        Self::hash(&[LOCAL])
    }

    /// A client without a key that asks from elsewhere.
    pub fn of_account(owner: Owner) -> Self {
        match owner {
            Owner::Address(address) => Self::hash(&[ADDRESS, address.to_string().as_bytes()]),
            Owner::Key(_) | Owner::Anonymous => Self::hash(&[ADDRESS]),
        }
    }

    fn hash(parts: &[&[u8]]) -> Self {
        let hasher = parts.iter().fold(Sha256::new(), Sha256::chain_update);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize()[..16]);
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Tenant {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_addresses_and_this_machine_are_told_apart_and_written_so_that_they_can_be_read() {
        let at = |text: &str| Tenant::of_account(Owner::Address(text.parse().unwrap()));
        let mut all = vec![
            Tenant::of_key(&[0; 32]),
            Tenant::of_key(&[1; 32]),
            Tenant::local(),
            at("10.0.0.1"),
            at("10.0.0.2"),
            Tenant::of_account(Owner::Anonymous),
        ];
        for tenant in &all {
            assert_eq!(tenant.to_string().parse(), Ok(*tenant));
        }
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
