//! `GET /v1/models`.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use serde_json::{Value, json};

use super::OpenAiError;
use crate::anthropic;
use crate::app::Shared;
use crate::embedding::EmbeddingModel;
use crate::model::Model;

pub async fn list(State(app): State<Shared>, headers: HeaderMap) -> Json<Value> {
    if headers.contains_key("anthropic-version") {
        return Json(anthropic::list_models(&app));
    }
    let chat = app.models.all().iter().map(|model| describe(model)).collect::<Vec<_>>();
    let data: Vec<_> =
        chat.into_iter().chain(app.embeddings.all().iter().map(|model| embeds(model))).collect();
    Json(json!({ "object": "list", "data": data }))
}

pub async fn one(State(app): State<Shared>, Path(id): Path<String>) -> Result<Json<Value>, OpenAiError> {
    match app.embeddings.named(&id) {
        Some(model) => Ok(Json(embeds(model))),
        None => Ok(Json(describe(&*app.models.find(&id)?))),
    }
}

fn embeds(model: &EmbeddingModel) -> Value {
    json!({ "id": model.name, "object": "model", "created": model.created, "owned_by": "ropeway" })
}

fn describe(model: &Model) -> Value {
    json!({
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "ropeway",
        "max_model_len": model.context(),
    })
}
