//! `POST /v1/agents/{id}/generate`: one more turn of a conversation that the server holds.
//!
//! ```text
//! what was said, and what is new ──> answer ──> both are part of what was said
//! ```
//! Every turn begins with all turns before, so that all but the new part is in the cache, in memory or on disk. An answer that
//! failed or that nobody waited for is no part of the conversation, nor is what it was asked.

use std::time::Instant;

use axum::Json;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use ropeway_generation::{Conversation, GenerationEvent, Prompt, StopReason, collect, text_of};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::agent::Messages;
use super::id::{AgentId, AgentKey};
use super::turn::AgentLink;
use super::wire::{extend, turn};
use crate::app::Shared;
use crate::ask::{Ask, Opened, Wire};
use crate::error::ApiError;
use crate::generate::{Parameters, respond, result};
use crate::generation::generate;
use crate::intake::PER_BYTE;
use crate::intake::shape::{Field, Holds};
use crate::model::unix_seconds;
use crate::openai::OpenAiError;

/// What is said next, and how it is to be answered.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct AgentGenerateRequest {
    /// What a user says.
    prompt: Option<String>,
    /// Messages of any role, in place of `prompt`.
    messages: Option<Vec<Value>>,
    /// Forget all turns before: go on from what the agent was made with.
    #[serde(default)]
    reset: bool,
    #[serde(flatten)]
    parameters: Parameters,
    /// The agent's own model.
    #[serde(skip)]
    agent_model: Option<String>,
}

impl Wire for AgentGenerateRequest {
    const FIELDS: &'static [Field] =
        &[Field::new("prompt", Holds::Prompt), Field::new("messages", Holds::Conversation)];

    fn model(&self) -> Option<&str> {
        self.parameters.model().or(self.agent_model.as_deref())
    }

    fn cache_salt(&self) -> Option<&str> {
        self.parameters.cache_salt()
    }
}

pub async fn create(Path(id): Path<String>, mut ask: Ask) -> Result<Response, OpenAiError> {
    let mut request: AgentGenerateRequest = ask.body().await?;
    let key = AgentKey { tenant: ask.client().tenant(), id: AgentId::of_session(&id) };
    let link = AgentLink { app: Shared::clone(ask.app()), key, is_claimed: true };
    let (claim, model) = Claim::new(link.clone())?;
    request.agent_model = Some(model);
    let Opened { mut request, model, mut caller } = ask.admit(request).await?;
    caller.agent = Some(link.clone());
    let began = Instant::now();
    let (prompt, streams) = (request.prompt.clone(), request.parameters.stream);
    let given = turn(request.prompt.take(), request.messages.take())?;
    let claim = claim.ask(given, request.reset)?;
    caller.intake.cover(claim.messages.bytes().saturating_mul(PER_BYTE))?;
    let job = request.parameters.job(Prompt::Conversation(claim.conversation()))?;
    let events = claim.record(generate(&model, job, caller).await?);
    if streams {
        return Ok(respond(events));
    }
    let choice = collect(events).await?.only()?;
    let mut told = result(prompt.as_deref().unwrap_or_default(), &choice, began);
    if let Value::Object(fields) = &mut told {
        fields.shift_remove("full_text");
    }
    let usage = &choice.finish.usage;
    let more = json!({
        "agent_id": link.key.id, "model": model.name,
        "cached_tokens": usage.cached, "disk_tokens": usage.fetched,
    });
    extend(&mut told, more);
    Ok(Json(told).into_response())
}

/// An agent's turn, until it is dropped.
struct Claim {
    link: AgentLink,
    messages: Messages,
}

impl Claim {
    /// The agent's turn and its model, unless it is answering already.
    fn new(link: AgentLink) -> Result<(Self, String), ApiError> {
        let claimed = link.app.agents.registry.claim(&link.key, unix_seconds())?;
        Ok((Self { link, messages: claimed.messages }, claimed.model))
    }

    /// What is asked in this turn.
    fn ask(mut self, given: Vec<Value>, is_reset: bool) -> Result<Self, ApiError> {
        let before = std::mem::take(&mut self.messages);
        self.messages = if is_reset { before.reset() } else { before }.and(given)?;
        self.link.app.agents.registry.check_conversation(&self.link.key, self.messages.bytes())?;
        Ok(self)
    }

    fn conversation(&self) -> Conversation {
        Conversation { messages: self.messages.all().to_vec(), reasoning: true, ..Conversation::default() }
    }

    /// Ends the turn with these events: a whole answer is part of the conversation.
    fn record(
        mut self,
        events: impl Stream<Item = GenerationEvent> + Send + Unpin + 'static,
    ) -> impl Stream<Item = GenerationEvent> + Send + Unpin + 'static {
        let mut answer = String::new();
        events.inspect(move |event| match event {
            GenerationEvent::Output { deltas, .. } => answer.push_str(&text_of(deltas.clone())),
            GenerationEvent::Finished { finish, .. } if !matches!(finish.reason, StopReason::Failed(_)) => {
                self.answered(&answer);
            }
            _ => {}
        })
    }

    fn answered(&mut self, text: &str) {
        let answer = json!({ "role": "assistant", "content": text });
        // An answer that there is no room for is not remembered; the next turn says that there is none.
        if let Ok(messages) = std::mem::take(&mut self.messages).and(vec![answer]) {
            self.link.app.agents.registry.set_conversation(&self.link.key, messages);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.link.app.agents.registry.release(&self.link.key);
    }
}
