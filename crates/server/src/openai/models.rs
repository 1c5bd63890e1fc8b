//! `GET /v1/models`.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use serde_json::{Value, json};

use super::OpenAiError;
use crate::anthropic;
use crate::app::Shared;
use crate::model::Model;

pub async fn list(State(app): State<Shared>, headers: HeaderMap) -> Json<Value> {
    if headers.contains_key("anthropic-version") {
        return Json(anthropic::list_models(&app));
    }
    let data: Vec<_> = app.models.all().iter().map(|model| describe(model)).collect();
    Json(json!({ "object": "list", "data": data }))
}

pub async fn one(State(app): State<Shared>, Path(id): Path<String>) -> Result<Json<Value>, OpenAiError> {
    Ok(Json(describe(&*app.models.find(&id)?)))
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
