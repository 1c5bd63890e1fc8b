//! What is kept: responses and conversations.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::item::{Charge, Items, OVERHEAD};
use crate::error::ApiError;

/// Tells whoever writes a response to stop.
pub type Cancel = Arc<Notify>;

/// Something that is kept.
#[derive(Debug)]
pub enum Entry {
    /// A response.
    Response(Arc<KeptResponse>),
    /// A conversation.
    Conversation(KeptConversation),
}

/// How far a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits in the background.
    Queued,
    /// It is written in the background.
    InProgress,
    /// It was stopped.
    Cancelled,
    /// Its body says how it ended.
    Ended,
}

/// A response that was made.
#[derive(Clone, Debug)]
pub struct NewResponse {
    /// Its id.
    pub id: String,
    /// All of it but its output.
    pub body: Value,
    /// The items of all turns before.
    pub before: Items,
    /// Its own input.
    pub input: Items,
    /// Its output, with ids.
    pub output: Vec<Value>,
    /// Stops it, while it runs in the background.
    pub cancel: Option<Cancel>,
}

impl NewResponse {
    pub(super) fn keep(self, output: Items, charge: impl FnOnce(usize) -> Charge) -> (String, KeptResponse) {
        let Self { id, body, before, input, cancel, .. } = self;
        let is_background = body["background"] == true;
        let body: Arc<str> = body.to_string().into();
        let pointers = (before.len() + input.len() + output.len()) * size_of::<usize>();
        let charge = Arc::new(charge(id.len() + body.len() + pointers + OVERHEAD));
        let stage = if cancel.is_some() { Stage::Queued } else { Stage::Ended };
        (id, KeptResponse { body, before, input, output, is_background, stage, cancel, _charge: charge })
    }
}

/// A response that is kept.
#[derive(Clone, Debug)]
pub struct KeptResponse {
    body: Arc<str>,
    /// The items of all turns before.
    pub before: Items,
    /// Its own input.
    pub input: Items,
    /// Its output.
    pub output: Items,
    /// Whether it was asked to run in the background.
    pub is_background: bool,
    /// How far it is.
    pub stage: Stage,
    /// Stops it, while it runs.
    pub cancel: Option<Cancel>,
    _charge: Arc<Charge>,
}

impl KeptResponse {
    /// Whether it is still being written.
    pub fn is_running(&self) -> bool {
        self.cancel.is_some()
    }

    /// The response as clients see it.
    pub fn value(&self) -> Value {
        let mut body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["output"] = self.output.iter().map(|item| item.value()).collect();
        match self.stage {
            Stage::Queued => body["status"] = "queued".into(),
            Stage::InProgress => body["status"] = "in_progress".into(),
            Stage::Cancelled => body["status"] = "cancelled".into(),
            Stage::Ended => {}
        }
        body
    }

    /// All that was said, for a turn after it.
    pub fn whole(&self) -> Items {
        [&self.before[..], &self.input, &self.output].concat()
    }
}

/// A conversation that was made.
#[derive(Clone, Debug)]
pub struct NewConversation {
    /// Its id.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// What its client notes about it.
    pub metadata: Value,
    /// What it begins with.
    pub items: Items,
}

impl NewConversation {
    pub(super) fn keep(self, charge: impl FnOnce(usize) -> Charge) -> (String, KeptConversation) {
        let Self { id, created, metadata, items } = self;
        let charge = Arc::new(charge(id.len() + MOST_METADATA_BYTES + OVERHEAD));
        (id.clone(), KeptConversation { id, created, metadata, items, _charge: charge })
    }
}

/// Bytes of the longest metadata: 16 names of 64 characters with values of 512 characters.
const MOST_METADATA_BYTES: usize = 16 * (64 + 512);

/// Items of a conversation. Their bytes are charged to those who sent them, the list itself to nobody.
const MOST_ITEMS: usize = 10_000;

/// A conversation that is kept.
#[derive(Clone, Debug)]
pub struct KeptConversation {
    id: String,
    created: u64,
    /// What its client notes about it.
    pub metadata: Value,
    /// What was said.
    pub items: Items,
    _charge: Arc<Charge>,
}

impl KeptConversation {
    /// Adds what was said, unless the conversation is as long as one may be.
    pub fn extend(&mut self, items: Items) -> Result<(), ApiError> {
        if self.items.len() + items.len() > MOST_ITEMS {
            let what = format!("a conversation has at most {MOST_ITEMS} items; begin another one");
            return Err(ApiError::invalid(what).about("conversation"));
        }
        self.items.extend(items);
        Ok(())
    }

    /// The conversation as clients see it.
    pub fn value(&self) -> Value {
        json!({
            "id": self.id, "object": "conversation", "created_at": self.created, "metadata": self.metadata,
        })
    }
}
