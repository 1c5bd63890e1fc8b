//! What agents and sessions are called.
//!
//! ```text
//! POST /v1/agents {"id": ...}     the client's choice, or one of ours
//! a request's headers             X-Agent-ID before X-Session-ID: the narrower name; Claude Code's own likewise
//! a request's body                session_id
//! ```

use std::fmt;

use axum::http::HeaderMap;
use ropeway_generation::unique;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::ApiError;
use crate::guard::tenant::Tenant;

/// Headers that name an agent or a session, the narrowest first.
const NAMES: [&str; 4] = ["x-agent-id", "x-claude-code-agent-id", "x-session-id", "x-claude-code-session-id"];

/// Bytes of the longest id: a UUID has 36, names that programs put together up to about 100.
const LONGEST: usize = 128;

/// What stands beside the agents in the paths of the API.
const RESERVED: &str = "stats";

/// The name of an agent or a session: fit for a path, a log and a shell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct AgentId(String);

impl AgentId {
    /// An id that a client chose.
    pub fn chosen(text: &str) -> Result<Self, ApiError> {
        if is_fit(text) {
            return Ok(Self(text.into()));
        }
        let what = format!(
            "an id has 1 to {LONGEST} letters, digits and -_.:@+= and begins with a letter, a digit or _; {RESERVED:?} is \
             taken"
        );
        Err(ApiError::invalid(what).about("id"))
    }

    /// One that nobody has.
    pub fn unique() -> Self {
        Self(unique("agent_"))
    }

    /// The session that a client calls so: by that name if it is fit for an id, else by its digest.
    pub fn of_session(text: &str) -> Self {
        if is_fit(text) {
            return Self(text.into());
        }
        Self(format!("session-{}", digest(text)))
    }

    /// The agent or session that a request belongs to, if it names one.
    pub fn of_request(headers: &HeaderMap, session: Option<&str>) -> Option<Self> {
        let header = |name: &&str| headers.get(*name).and_then(|value| value.to_str().ok());
        let name = NAMES.iter().find_map(header).or(session)?.trim();
        (!name.is_empty()).then(|| Self::of_session(name))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for AgentId {
    type Error = ApiError;

    fn try_from(text: String) -> Result<Self, ApiError> {
        Self::chosen(&text)
    }
}

fn is_fit(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@+=".contains(&byte);
    let begins = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= LONGEST
        && text.bytes().next().is_some_and(begins)
        && text.bytes().all(plain)
        && text != RESERVED
}

/// 16 hexadecimal digits.
fn digest(text: &str) -> String {
    let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(Sha256::digest(text));
    format!("{:016x}", u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

/// An agent among those of all tenants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentKey {
    /// Whose it is.
    pub tenant: Tenant,
    /// What it is called.
    pub id: AgentId,
}

impl AgentKey {
    /// What its blocks are pinned under, and its file is called. Ids may be equal but for upper and lower case, which
    /// some file systems don't tell apart.
    pub fn file_stem(&self) -> String {
        format!("{}-{}", self.tenant, digest(self.id.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(headers: &[(&'static str, &str)], session: Option<&str>) -> Option<String> {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        AgentId::of_request(&headers.collect(), session).map(|id| id.to_string())
    }

    #[test]
    fn ids_are_fit_for_a_path_and_stats_is_taken() {
        for fit in ["a", "_a", "0b2f-4c", "team.coder:1@x+y=", &"x".repeat(LONGEST)] {
            assert!(AgentId::chosen(fit).is_ok(), "{fit}");
        }
        for unfit in ["", ".", "..", "-a", "a/b", "a b", "ä", "stats", "a%2e", &"x".repeat(LONGEST + 1)] {
            assert_eq!(AgentId::chosen(unfit).unwrap_err().param.as_deref(), Some("id"), "{unfit}");
        }
        assert!(AgentId::chosen(AgentId::unique().as_str()).is_ok());
    }

    #[test]
    fn the_narrowest_name_wins_and_any_text_can_name_a_session() {
        let both = [("x-session-id", "s"), ("x-agent-id", "a")];
        assert_eq!(named(&both, Some("b")).as_deref(), Some("a"));
        assert_eq!(named(&[("x-claude-code-session-id", "c")], Some("b")).as_deref(), Some("c"));
        assert_eq!(named(&[], Some("b")).as_deref(), Some("b"));
        assert_eq!((named(&[], None), named(&[("x-session-id", " ")], None)), (None, None));
        let odd = named(&[], Some("a session with spaces")).unwrap();
        assert!(AgentId::chosen(&odd).is_ok() && odd.starts_with("session-"), "{odd}");
        assert_ne!(Some(odd), named(&[], Some("another session with spaces")));
    }
}
