//! `/v1/conversations`: what was said, kept apart from any response; responses that name a conversation go on with it and
//! add to it.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::Uri;
use ropeway_generation::unique;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::OpenAiError;
use super::responses::memory::{Memory, missing};
use super::responses::metadata;
use super::responses::page::{Page, list};
use super::store::{Items, NewConversation};
use crate::app::Shared;
use crate::ask::{Ask, Wire};
use crate::error::ApiError;
use crate::guard::Client;
use crate::intake::shape::{Field, Holds};
use crate::model::unix_seconds;

/// Items that may be added at a time, as with OpenAI.
const MOST_ADDED: usize = 20;

/// A conversation to be made or changed, or items to be added to one.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct ConversationRequest {
    /// Items as responses take them.
    #[serde(default)]
    items: Option<Vec<Value>>,
    /// Up to 16 texts with names.
    metadata: Option<Value>,
}

impl Wire for ConversationRequest {
    const FIELDS: &'static [Field] =
        &[Field::new("items", Holds::Conversation), Field::new("metadata", Holds::Conversation)];

    fn model(&self) -> Option<&str> {
        None
    }
}

pub async fn create(mut ask: Ask) -> Result<Json<Value>, OpenAiError> {
    let request: ConversationRequest = ask.body().await?;
    metadata(request.metadata.as_ref())?;
    let memory = memory(&ask);
    let items = admit(&memory, request.items)?;
    let (id, now) = (unique("conv_"), unix_seconds());
    let metadata = request.metadata.filter(|given| !given.is_null()).unwrap_or_else(|| json!({}));
    let new = NewConversation { id: id.clone(), created: now, metadata, items };
    memory.app.responses.start(memory.tenant, new, now);
    Ok(Json(memory.conversation(&id)?.value()))
}

pub async fn one(
    State(app): State<Shared>,
    client: Client,
    Path(id): Path<String>,
) -> Result<Json<Value>, OpenAiError> {
    Ok(Json(Memory { app, tenant: client.tenant() }.conversation(&id)?.value()))
}

pub async fn update(Path(id): Path<String>, mut ask: Ask) -> Result<Json<Value>, OpenAiError> {
    let request: ConversationRequest = ask.body().await?;
    metadata(request.metadata.as_ref())?;
    let memory = memory(&ask);
    let metadata = request.metadata.filter(|given| !given.is_null()).unwrap_or_else(|| json!({}));
    let change = memory.app.responses.change_conversation(memory.tenant, &id, unix_seconds(), |kept| {
        kept.metadata = metadata;
        kept.value()
    });
    Ok(Json(change.ok_or_else(|| missing("Conversation", &id))?))
}

pub async fn delete(
    State(app): State<Shared>,
    client: Client,
    Path(id): Path<String>,
) -> Result<Json<Value>, OpenAiError> {
    let deleted = app.responses.delete_conversation(client.tenant(), &id, unix_seconds());
    deleted.ok_or_else(|| missing("Conversation", &id))?;
    Ok(Json(json!({ "id": id, "object": "conversation.deleted", "deleted": true })))
}

pub async fn items(
    State(app): State<Shared>,
    client: Client,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Json<Value>, OpenAiError> {
    let page = Page::read(&uri)?;
    let kept = Memory { app, tenant: client.tenant() }.conversation(&id)?;
    Ok(Json(page.of(&kept.items)?))
}

pub async fn add_items(Path(id): Path<String>, mut ask: Ask) -> Result<Json<Value>, OpenAiError> {
    let request: ConversationRequest = ask.body().await?;
    let memory = memory(&ask);
    let items = admit(&memory, request.items)?;
    // References are short, and what they stand for is not.
    ask.cover(items.iter().map(|item| item.parsed_bytes()).sum())?;
    let told = list(items.iter().map(|item| item.value()).collect(), false);
    let added = memory
        .app
        .responses
        .change_conversation(memory.tenant, &id, unix_seconds(), |kept| kept.extend(items));
    added.ok_or_else(|| missing("Conversation", &id))??;
    Ok(Json(told))
}

pub async fn one_item(
    State(app): State<Shared>,
    client: Client,
    Path((id, item_id)): Path<(String, String)>,
) -> Result<Json<Value>, OpenAiError> {
    let kept = Memory { app, tenant: client.tenant() }.conversation(&id)?;
    let item = kept.items.iter().find(|item| item.id() == item_id);
    Ok(Json(item.ok_or_else(|| missing("Item", &item_id))?.value()))
}

pub async fn delete_item(
    State(app): State<Shared>,
    client: Client,
    Path((id, item_id)): Path<(String, String)>,
) -> Result<Json<Value>, OpenAiError> {
    let change = app.responses.change_conversation(client.tenant(), &id, unix_seconds(), |kept| {
        let at = kept.items.iter().position(|item| item.id() == item_id)?;
        kept.items.remove(at);
        Some(kept.value())
    });
    let conversation = change.ok_or_else(|| missing("Conversation", &id))?;
    Ok(Json(conversation.ok_or_else(|| missing("Item", &item_id))?))
}

fn memory(ask: &Ask) -> Memory {
    Memory { app: Shared::clone(ask.app()), tenant: ask.client().tenant() }
}

fn admit(memory: &Memory, items: Option<Vec<Value>>) -> Result<Items, ApiError> {
    if items.as_ref().is_some_and(|items| items.len() > MOST_ADDED) {
        let what = format!("at most {MOST_ADDED} items at a time; send the rest after them");
        return Err(ApiError::invalid(what).about("items"));
    }
    let given = memory.resolve(items.unwrap_or_default())?;
    memory.admit(given)
}
