//! `GET /v1/models`.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use serde_json::{Value, json};

use super::OpenAiError;
use crate::anthropic;
use crate::app::Shared;
use crate::embedding::EmbeddingModel;
use crate::guard::Client;
use crate::model::Model;

pub async fn list(State(app): State<Shared>, client: Client, headers: HeaderMap) -> Json<Value> {
    let visible = app.models.visible_to(client.rights());
    if headers.contains_key("anthropic-version") {
        return Json(anthropic::list_models(&visible));
    }
    let chat = visible.all().iter().map(|model| describe(model)).collect::<Vec<_>>();
    let embedding = app.embeddings.all().iter().filter(|model| visible.has(&model.name));
    let data: Vec<_> = chat.into_iter().chain(embedding.map(|model| embeds(model))).collect();
    Json(json!({ "object": "list", "data": data }))
}

pub async fn one(
    State(app): State<Shared>,
    client: Client,
    Path(id): Path<String>,
) -> Result<Json<Value>, OpenAiError> {
    let visible = app.models.visible_to(client.rights());
    match app.embeddings.named(&id).filter(|model| visible.has(&model.name)) {
        Some(model) => Ok(Json(embeds(model))),
        None => Ok(Json(describe(&*visible.find(&id)?))),
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
