//! What clients send about agents, and what they get back.

use ropeway_generation::RequestError;
use ropeway_openai::messages::messages;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::agent::{Figures, Listed, Messages};
use super::id::AgentId;
use super::whereabouts::Whereabouts;
use crate::ask::Wire;
use crate::error::ApiError;
use crate::intake::shape::{Field, Holds};
use crate::time::rfc3339;

/// An agent that is not used for a week is forgotten, unless it says otherwise.
const TTL: u64 = 7 * 24 * 60 * 60;

/// A minute to a month: nobody's blocks stay for good because they were forgotten.
const TTL_RANGE: std::ops::RangeInclusive<u64> = 60..=30 * 24 * 60 * 60;

/// Bytes of the longest name.
const LONGEST_NAME: usize = 256;

/// Makes an agent.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct CreateAgent {
    /// 1 to 128 letters, digits and `-_.:@+=`; one is made up without it. The id of a session makes that an agent.
    id: Option<String>,
    /// For people.
    name: Option<String>,
    model: Option<String>,
    /// What its conversation begins with: a system message.
    system: Option<String>,
    /// What its conversation begins with, after `system`.
    messages: Option<Vec<Value>>,
    /// Seconds without use after which it is forgotten: 60 to 2592000, a week without it.
    ttl_seconds: Option<u64>,
}

impl Wire for CreateAgent {
    const FIELDS: &'static [Field] =
        &[Field::new("system", Holds::Prompt), Field::new("messages", Holds::Conversation)];

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

impl CreateAgent {
    /// What it is to be called.
    pub fn id(&self) -> Result<AgentId, ApiError> {
        self.id.as_deref().map_or_else(|| Ok(AgentId::unique()), AgentId::chosen)
    }

    /// What people call it.
    pub fn name(&self) -> Result<Option<String>, ApiError> {
        if self.name.as_ref().is_some_and(|name| name.len() > LONGEST_NAME) {
            return Err(ApiError::invalid(format!("a name has at most {LONGEST_NAME} bytes")).about("name"));
        }
        Ok(self.name.clone())
    }

    /// Seconds without use after which it is forgotten.
    pub fn ttl(&self) -> Result<u64, ApiError> {
        let ttl = self.ttl_seconds.unwrap_or(TTL);
        if TTL_RANGE.contains(&ttl) {
            return Ok(ttl);
        }
        let what = format!("ttl_seconds is {} to {}", TTL_RANGE.start(), TTL_RANGE.end());
        Err(ApiError::invalid(what).about("ttl_seconds"))
    }

    /// What its conversation begins with.
    pub fn preamble(self) -> Result<Messages, ApiError> {
        let system = self.system.map(|text| json!({ "role": "system", "content": text }));
        let all = system.into_iter().chain(messages(self.messages.unwrap_or_default())?).collect();
        Messages::preamble(all)
    }
}

/// What is appended to a conversation: a prompt, or messages.
pub fn turn(prompt: Option<String>, given: Option<Vec<Value>>) -> Result<Vec<Value>, RequestError> {
    match (prompt, given) {
        (Some(text), None) => Ok(vec![json!({ "role": "user", "content": text })]),
        (None, Some(given)) if !given.is_empty() => messages(given),
        _ => Err(RequestError::invalid("send either prompt or messages: what comes next").at("prompt")),
    }
}

/// An agent as the API shows it. Where nobody knows where its blocks are, its tier is `unknown`.
pub fn describe(agent: &Listed, found: Option<Whereabouts>, block_tokens: usize) -> Value {
    let Listed { key, about, messages } = agent;
    let mut told = json!({
        "id": key.id,
        "object": "agent",
        "kind": about.kind.name(),
        "name": about.name,
        "model": about.model,
        "tier": found.map_or("unknown", |found| found.tier()),
        "tokens": found.map(|found| found.tokens()),
        "memory_tokens": found.map(|found| found.memory_tokens),
        "disk_tokens": found.map(|found| found.disk_tokens),
        "bytes": found.map(|found| found.bytes),
        "conversation_tokens": about.tokens,
        "pinned_tokens": about.pinned.blocks * block_tokens,
        "messages": messages,
    });
    extend(&mut told, figures(&about.figures));
    let times = json!({
        "created_at": rfc3339(about.created),
        "last_used_at": rfc3339(about.last_used),
        "expires_at": rfc3339(about.expires()),
        "ttl_seconds": about.ttl,
    });
    extend(&mut told, times);
    told
}

/// What requests did.
pub fn figures(figures: &Figures) -> Value {
    json!({
        "requests": figures.requests,
        "hits": figures.hits,
        "total_prompt_tokens": figures.prompt_tokens,
        "total_cached_tokens": figures.cached_tokens,
        "total_disk_tokens": figures.disk_tokens,
        "total_generated_tokens": figures.generated_tokens,
    })
}

/// The fields of both objects.
pub fn extend(object: &mut Value, more: Value) {
    if let (Value::Object(fields), Value::Object(more)) = (object, more) {
        fields.extend(more);
    }
}
