//! API keys: who may ask, how much, and what else they may do.
//!
//! ```text
//! # one key a line                                  what follows is optional
//! sk-3f9a...  name=alice max-priority=interactive concurrency=8 tokens-per-minute=100000
//! sk-77a1...  name=ops admin
//! sk-c0de...  name=team models=smollm2,qwen3:4b pull
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
use super::rights::{Right, Rights};

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
    /// What they may do, and with which models.
    pub rights: Rights,
}

/// A key of this server.
#[derive(Clone, Debug)]
struct Key {
    /// SHA-256 of the key.
    digest: [u8; 32],
    holder: Holder,
}

/// The key that a request carries.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Its place in the file.
    pub number: usize,
    /// SHA-256 of the key.
    pub digest: &'a [u8; 32],
    /// Whose it is.
    pub holder: &'a Holder,
}

/// All keys. Empty means that nobody is asked for one.
#[derive(Clone, Debug, Default)]
pub struct KeyRing {
    keys: Vec<Key>,
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
        let mut keys: Vec<Key> = Vec::new();
        for (index, line) in text.split(['\n', ';']).enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = |what: String| BadKey { line: index + 1, what };
            let key = entry(line, keys.len() + 1).map_err(bad)?;
            if keys.iter().any(|other| other.digest == key.digest) {
                return Err(bad("this key was given before; each key has one line".into()));
            }
            if keys.len() == MOST_KEYS {
                return Err(bad(format!("at most {MOST_KEYS} keys")));
            }
            keys.push(key);
        }
        Ok(Self { keys })
    }
}

impl KeyRing {
    /// Whether nobody is asked for a key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// These and those.
    pub fn and(mut self, other: KeyRing) -> Self {
        self.keys.extend(other.keys);
        self
    }

    /// The key that a request carries, if it is one of these.
    pub fn find(&self, headers: &HeaderMap) -> Option<Found<'_>> {
        let digest = Sha256::digest(presented(headers)?);
        let mut found = None;
        for (number, Key { digest: known, holder }) in self.keys.iter().enumerate() {
            if bool::from(known.as_slice().ct_eq(&digest)) {
                found = Some(Found { number, digest: known, holder });
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

fn entry(line: &str, number: usize) -> Result<Key, String> {
    let mut words = line.split_whitespace();
    let key = words.next().unwrap_or_default();
    if key.len() < SHORTEST {
        return Err(format!("a key has at least {SHORTEST} characters"));
    }
    let mut holder = Holder {
        name: format!("key-{number}").into(),
        max_priority: Class::Interactive,
        allowance: Allowance::default(),
        rights: Rights::default(),
    };
    for word in words {
        holder.set(word)?;
    }
    if holder.rights.may(Right::Admin) && holder.rights.are_limited_to_models() {
        return Err("admin may use every model; leave models= out, or admin".into());
    }
    Ok(Key { digest: Sha256::digest(key).into(), holder })
}

impl Holder {
    fn set(&mut self, word: &str) -> Result<(), String> {
        let known = "name=NAME, max-priority=interactive|default|bulk, concurrency=N, tokens-per-minute=N, \
                     models=A,B, pull, metrics and admin";
        let Some((setting, value)) = word.split_once('=') else {
            let right = Right::ALL.into_iter().find(|right| right.name() == word);
            let right = right.ok_or_else(|| format!("{word:?} is none of {known}"))?;
            self.rights = std::mem::take(&mut self.rights).with(right);
            return Ok(());
        };
        let number = || value.parse::<NonZeroU32>().map_err(|_| format!("{value:?} is no number from 1 on"));
        match setting {
            "name" => self.name = value.into(),
            "concurrency" => self.allowance.concurrency = Some(number()?),
            "tokens-per-minute" => self.allowance.tokens_per_minute = Some(number()?),
            "models" => {
                let names: Vec<_> = value.split(',').map(str::to_owned).collect();
                if names.iter().any(String::is_empty) {
                    return Err("models= needs names, separated by commas without spaces".into());
                }
                self.rights = std::mem::take(&mut self.rights).with_models_only(names);
            }
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
        let alice = ring.find(&headers("authorization", "bearer sk-alice-1")).unwrap();
        assert_eq!((alice.number, &*alice.holder.name), (0, "alice"));
        assert_eq!(alice.holder.allowance.concurrency.map(NonZeroU32::get), Some(2));
        let batch = ring.find(&headers("x-api-key", "sk-batch-1")).unwrap();
        assert_eq!((batch.number, &*batch.holder.name), (1, "key-2"));
        assert_eq!(batch.holder.max_priority, Class::Bulk);
        assert_eq!(batch.holder.rights, Rights::default(), "rights are given, never assumed");
        for wrong in ["sk-alice", "sk-alice-12", "", "Bearer sk-alice-1"] {
            assert!(ring.find(&headers("x-api-key", wrong)).is_none(), "{wrong}");
        }
        assert!(ring.find(&headers("authorization", "Basic sk-alice-1")).is_none());
    }

    #[test]
    fn rights_are_words_and_models_a_list() {
        let ring: KeyRing =
            "sk-ops-12 admin\nsk-team-1 models=smollm2,qwen3:4b pull metrics".parse().unwrap();
        let rights = |key| ring.find(&headers("x-api-key", key)).unwrap().holder.rights.clone();
        assert_eq!(rights("sk-ops-12"), Rights::everything());
        let team = rights("sk-team-1");
        assert!(team.may(Right::Pull) && team.may(Right::Metrics) && !team.may(Right::Admin));
        assert!(team.may_use("smollm2:135m") && !team.may_use("qwen3:8b"));
    }

    #[test]
    fn mistakes_are_named_with_their_line_and_without_the_key() {
        for (text, part) in [
            ("short", "at least 8"),
            ("# x\nlong-enough nme=a", "line 2: \"nme\" is none of name=NAME"),
            ("long-enough concurrency=0", "from 1 on"),
            ("long-enough max-priority=now", "interactive, default and bulk"),
            ("long-enough root", "\"root\" is none of name=NAME"),
            ("long-enough models=a,,b", "separated by commas"),
            ("long-enough admin models=a", "admin may use every model"),
            ("long-enough;long-enough", "line 2: this key was given before"),
        ] {
            let error = text.parse::<KeyRing>().unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("long-enough"), "{error}");
        }
    }
}
