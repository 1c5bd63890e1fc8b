//! Responses that are stored: look at one, see what it was given, stop it, delete it.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::Uri;
use serde_json::{Value, json};

use super::memory::{Memory, missing};
use super::page::{Page, query};
use crate::app::Shared;
use crate::error::ApiError;
use crate::guard::Client;
use crate::model::unix_seconds;
use crate::openai::OpenAiError;

pub async fn one(
    State(app): State<Shared>,
    client: Client,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Json<Value>, OpenAiError> {
    if query(&uri, "stream") == Some("true") {
        let what =
            "a stored response can't be streamed; ask for it without stream until its status is completed";
        return Err(ApiError::invalid(what).about("stream").into());
    }
    Ok(Json(Memory { app, tenant: client.tenant() }.response(&id)?.value()))
}

pub async fn input_items(
    State(app): State<Shared>,
    client: Client,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Json<Value>, OpenAiError> {
    let page = Page::read(&uri)?;
    let kept = Memory { app, tenant: client.tenant() }.response(&id)?;
    Ok(Json(page.of(&[&kept.before[..], &kept.input].concat())?))
}

pub async fn cancel(
    State(app): State<Shared>,
    client: Client,
    Path(id): Path<String>,
) -> Result<Json<Value>, OpenAiError> {
    let memory = Memory { app, tenant: client.tenant() };
    if !memory.response(&id)?.is_background {
        let what = "only a response with background=true can be cancelled; to stop another one, close its connection";
        return Err(ApiError::invalid(what).into());
    }
    let kept = memory.app.responses.cancel(memory.tenant, &id, unix_seconds());
    Ok(Json(kept.ok_or_else(|| missing("Response", &id))?.value()))
}

pub async fn delete(
    State(app): State<Shared>,
    client: Client,
    Path(id): Path<String>,
) -> Result<Json<Value>, OpenAiError> {
    let deleted = app.responses.delete_response(client.tenant(), &id, unix_seconds());
    deleted.ok_or_else(|| missing("Response", &id))?;
    Ok(Json(json!({ "id": id, "object": "response", "deleted": true })))
}
