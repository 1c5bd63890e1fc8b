//! One agent: what is known about it, and its conversation.

use std::sync::Arc;

use ropeway_engine::kv::BlockHash;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::id::AgentKey;
use crate::error::ApiError;

/// Bytes of a conversation, as JSON: about the longest that contexts of today hold.
pub const MOST_CONVERSATION_BYTES: usize = 1 << 20;

/// Blocks of a conversation that are known by name: 128 Ki tokens in blocks of 16.
pub const MOST_NAMES: usize = 8192;

/// How something came to be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentKind {
    /// Made by `POST /v1/agents`: it is kept across restarts, and its blocks are pinned.
    Agent,
    /// Named by requests: it is shown, and nothing else.
    Session,
}

impl AgentKind {
    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            AgentKind::Agent => "agent",
            AgentKind::Session => "session",
        }
    }
}

/// What requests of an agent did, in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Requests.
    pub requests: u64,
    /// Requests that found a part of their prompt in the cache.
    pub hits: u64,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Of these, how many came from the cache, in any tier.
    pub cached_tokens: u64,
    /// Of these, how many came from disk.
    pub disk_tokens: u64,
    /// Tokens of their answers.
    pub generated_tokens: u64,
}

impl Figures {
    /// Those of both.
    pub fn plus(self, other: Figures) -> Figures {
        Figures {
            requests: self.requests + other.requests,
            hits: self.hits + other.hits,
            prompt_tokens: self.prompt_tokens + other.prompt_tokens,
            cached_tokens: self.cached_tokens + other.cached_tokens,
            disk_tokens: self.disk_tokens + other.disk_tokens,
            generated_tokens: self.generated_tokens + other.generated_tokens,
        }
    }
}

/// What is pinned of an agent's conversation, from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    /// Blocks.
    pub blocks: usize,
    /// Bytes of these.
    pub bytes: u64,
}

/// What is known about an agent. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// How it came to be listed.
    pub kind: AgentKind,
    /// What people call it.
    pub name: Option<String>,
    /// The model that it asked last.
    pub model: String,
    /// The full blocks of its latest conversation, in order.
    #[serde(with = "block_names")]
    pub names: Arc<[BlockHash]>,
    /// Tokens of its latest conversation, as far as it was computed.
    pub tokens: usize,
    /// What of it is pinned.
    pub pinned: Pinned,
    /// What its requests did.
    pub figures: Figures,
    /// Seconds since 1970.
    pub created: u64,
    /// Seconds since 1970.
    pub last_used: u64,
    /// Seconds without use after which it is forgotten.
    pub ttl: u64,
}

impl About {
    /// One that has not been used.
    pub fn new(kind: AgentKind, model: String, ttl: u64, now: u64) -> Self {
        Self {
            kind,
            name: None,
            model,
            names: Arc::default(),
            tokens: 0,
            pinned: Pinned::default(),
            figures: Figures::default(),
            created: now,
            last_used: now,
            ttl,
        }
    }

    /// When it is forgotten if nobody uses it, in seconds since 1970.
    pub fn expires(&self) -> u64 {
        self.last_used.saturating_add(self.ttl)
    }
}

/// An agent and its conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// What is known about it.
    pub about: About,
    /// What was said.
    pub messages: Messages,
}

/// An agent as the API lists it.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Which one.
    pub key: AgentKey,
    /// What is known about it.
    pub about: About,
    /// Messages of its conversation.
    pub messages: usize,
}

/// A conversation that grows: what the agent was made with, then turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Messages {
    all: Vec<Value>,
    /// How many of them the agent was made with.
    preamble: usize,
    /// Bytes of all of them, as JSON.
    bytes: usize,
}

impl Messages {
    /// What an agent is made with.
    pub fn preamble(messages: Vec<Value>) -> Result<Self, ApiError> {
        let preamble = messages.len();
        Self { preamble, ..Self::default() }.and(messages)
    }

    /// These and more, if there is room.
    pub fn and(mut self, more: Vec<Value>) -> Result<Self, ApiError> {
        self.bytes += bytes(&more);
        self.all.extend(more);
        if self.bytes > MOST_CONVERSATION_BYTES {
            let what = format!(
                "an agent's conversation has at most {MOST_CONVERSATION_BYTES} bytes; begin anew with \"reset\": true, or \
                 send conversations yourself with X-Agent-ID"
            );
            return Err(ApiError::invalid(what).about("messages").coded("conversation_too_long"));
        }
        Ok(self)
    }

    /// What the agent was made with.
    #[must_use]
    pub fn reset(self) -> Self {
        let all: Vec<_> = self.all.into_iter().take(self.preamble).collect();
        Self { bytes: bytes(&all), preamble: self.preamble, all }
    }

    /// The messages.
    pub fn all(&self) -> &[Value] {
        &self.all
    }

    /// Bytes of all of them, as JSON.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

fn bytes(messages: &[Value]) -> usize {
    messages.iter().map(|message| message.to_string().len()).sum()
}

/// The same, as a file has it.
#[derive(Serialize, Deserialize)]
struct Written {
    all: Vec<Value>,
    preamble: usize,
}

impl From<Written> for Messages {
    fn from(Written { all, preamble }: Written) -> Self {
        Self { preamble: preamble.min(all.len()), bytes: bytes(&all), all }
    }
}

impl From<Messages> for Written {
    fn from(Messages { all, preamble, .. }: Messages) -> Self {
        Self { all, preamble }
    }
}

/// Names of blocks in a file: all digits in one text.
mod block_names {
    use std::fmt::Write;
    use std::sync::Arc;

    use ropeway_engine::kv::BlockHash;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Hexadecimal digits of a name.
    const DIGITS: usize = 64;

    pub fn serialize<S: Serializer>(names: &Arc<[BlockHash]>, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(names.len() * DIGITS);
        for byte in names.iter().flat_map(|name| name.bytes()) {
            let _ = write!(text, "{byte:02x}");
        }
        serializer.serialize_str(&text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[BlockHash]>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let names = text.as_bytes().chunks(DIGITS).map(name).collect::<Option<_>>();
        names.ok_or_else(|| D::Error::custom("names of blocks are hexadecimal digits, 64 each"))
    }

    fn name(digits: &[u8]) -> Option<BlockHash> {
        let digits = std::str::from_utf8(digits).ok().filter(|text| text.len() == DIGITS)?;
        let mut bytes = [0; DIGITS / 2];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        Some(BlockHash::from_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(text: &str) -> Vec<Value> {
        vec![json!({ "role": "user", "content": text })]
    }

    #[test]
    fn a_conversation_grows_begins_anew_and_has_an_end() {
        let made = Messages::preamble(said("be brief")).unwrap();
        let grown = made.clone().and(said("hello")).unwrap();
        assert_eq!((grown.all().len(), grown.bytes() > made.bytes()), (2, true));
        assert_eq!(grown.clone().reset(), made);
        let error = grown.and(said(&"x".repeat(MOST_CONVERSATION_BYTES))).unwrap_err();
        assert_eq!(error.code, Some("conversation_too_long"));
    }

    #[test]
    fn an_agent_is_read_as_it_was_written() {
        let names: Vec<_> = (0..3_u8).map(|number| BlockHash::root(&[number])).collect();
        let about = About {
            names: names.into(),
            tokens: 50,
            ..About::new(AgentKind::Agent, "smollm2:135m".into(), 60, 1000)
        };
        let messages = Messages::preamble(said("be brief")).unwrap().and(said("hello")).unwrap();
        let agent = Agent { about, messages };
        let text = serde_json::to_string(&agent).unwrap();
        assert_eq!(serde_json::from_str::<Agent>(&text).unwrap(), agent);
        for wrong in ["\"names\":\"0", "\"names\":\"x"] {
            let text = text.replacen("\"names\":\"", wrong, 1);
            assert!(serde_json::from_str::<Agent>(&text).is_err(), "{wrong}");
        }
    }
}
