//! API keys: who may ask, and how much.
//!
//! ```text
//! # one key a line                                  what follows is optional
//! sk-3f9a...  name=alice max-priority=interactive concurrency=8 tokens-per-minute=100000
//! ```
//! Keys are kept and compared as SHA-256 digests, in constant time and all of them, so that neither the time an answer
//! takes nor a look into memory tells anything about them. A key is never part of a message or a log line: its name is.

use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};
use ropeway_engine::Class;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::clients::Allowance;

/// Bytes of the shortest key taken: shorter ones can be guessed.
const SHORTEST: usize = 8;

/// Keys a server may have: all are compared at every request.
const MOST_KEYS: usize = 10_000;

/// A key's holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// For logs.
    pub name: Arc<str>,
    /// The most urgent class they may ask for.
    pub max_priority: Class,
    /// What they may use at a time; what is not said here is as for everyone.
    pub allowance: Allowance,
}

/// All keys. Empty means that nobody is asked for one.
#[derive(Clone, Debug, Default)]
pub struct KeyRing {
    keys: Vec<([u8; 32], Holder)>,
}

/// Why a file of keys can't be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: {what}")]
pub struct BadKey {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong and how it is written.
    pub what: String,
}

impl FromStr for KeyRing {
    type Err = BadKey;

    /// Reads lines of keys; `;` ends a line as well, for environment variables.
    fn from_str(text: &str) -> Result<Self, BadKey> {
        let mut keys: Vec<([u8; 32], Holder)> = Vec::new();
        for (index, line) in text.split(['\n', ';']).enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = |what: String| BadKey { line: index + 1, what };
            let (digest, holder) = entry(line, keys.len() + 1).map_err(bad)?;
            if keys.iter().any(|(other, _)| *other == digest) {
                return Err(bad("this key was given before; each key has one line".into()));
            }
            if keys.len() == MOST_KEYS {
                return Err(bad(format!("at most {MOST_KEYS} keys")));
            }
            keys.push((digest, holder));
        }
        Ok(Self { keys })
    }
}

impl KeyRing {
    /// Whether nobody is asked for a key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// These and those.
    pub fn and(mut self, other: KeyRing) -> Self {
        self.keys.extend(other.keys);
        self
    }

    /// The number and holder of the key that a request carries.
    pub fn find(&self, headers: &HeaderMap) -> Option<(usize, &Holder)> {
        let digest = Sha256::digest(presented(headers)?);
        let mut found = None;
        for (number, (key, holder)) in self.keys.iter().enumerate() {
            if bool::from(key.as_slice().ct_eq(&digest)) {
                found = Some((number, holder));
            }
        }
        found
    }
}

/// The key a request carries: `Authorization: Bearer KEY`, or `x-api-key: KEY`.
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).and_then(|value| {
        let (scheme, key) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
    });
    bearer.or_else(|| headers.get("x-api-key").map(HeaderValue::as_bytes))
}

fn entry(line: &str, number: usize) -> Result<([u8; 32], Holder), String> {
    let mut words = line.split_whitespace();
    let key = words.next().unwrap_or_default();
    if key.len() < SHORTEST {
        return Err(format!("a key has at least {SHORTEST} characters"));
    }
    let mut holder = Holder {
        name: format!("key-{number}").into(),
        max_priority: Class::Interactive,
        allowance: Allowance::default(),
    };
    for word in words {
        holder.set(word)?;
    }
    Ok((Sha256::digest(key).into(), holder))
}

impl Holder {
    fn set(&mut self, word: &str) -> Result<(), String> {
        let known = "name=NAME, max-priority=interactive|default|bulk, concurrency=N and tokens-per-minute=N";
        let (setting, value) = word.split_once('=').ok_or_else(|| format!("{word:?} is none of {known}"))?;
        let number = || value.parse::<NonZeroU32>().map_err(|_| format!("{value:?} is no number from 1 on"));
        match setting {
            "name" => self.name = value.into(),
            "concurrency" => self.allowance.concurrency = Some(number()?),
            "tokens-per-minute" => self.allowance.tokens_per_minute = Some(number()?),
            "max-priority" => {
                let class = Class::ALL.into_iter().find(|class| class.name() == value);
                self.max_priority =
                    class.ok_or_else(|| format!("{value:?} is none of interactive, default and bulk"))?;
            }
            _ => return Err(format!("{setting:?} is none of {known}")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(axum::http::HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn a_file_gives_keys_with_names_and_limits() {
        let text = "# people\nsk-alice-1 name=alice concurrency=2 tokens-per-minute=600\n\nsk-batch-1 max-priority=bulk";
        let ring: KeyRing = text.parse().unwrap();
        let (number, alice) = ring.find(&headers("authorization", "bearer sk-alice-1")).unwrap();
        assert_eq!((number, &*alice.name), (0, "alice"));
        assert_eq!(alice.allowance.concurrency.map(NonZeroU32::get), Some(2));
        let (number, batch) = ring.find(&headers("x-api-key", "sk-batch-1")).unwrap();
        assert_eq!((number, &*batch.name, batch.max_priority), (1, "key-2", Class::Bulk));
        for wrong in ["sk-alice", "sk-alice-12", "", "Bearer sk-alice-1"] {
            assert!(ring.find(&headers("x-api-key", wrong)).is_none(), "{wrong}");
        }
        assert!(ring.find(&headers("authorization", "Basic sk-alice-1")).is_none());
    }

    #[test]
    fn mistakes_are_named_with_their_line_and_without_the_key() {
        for (text, part) in [
            ("short", "at least 8"),
            ("# x\nlong-enough nme=a", "line 2: \"nme\" is none of name=NAME"),
            ("long-enough concurrency=0", "from 1 on"),
            ("long-enough max-priority=now", "interactive, default and bulk"),
            ("long-enough;long-enough", "line 2: this key was given before"),
        ] {
            let error = text.parse::<KeyRing>().unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("long-enough"), "{error}");
        }
    }
}
