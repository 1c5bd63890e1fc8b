//! Questions about the models: `/api/tags`, `/api/ps`, `/api/show`, `/api/version`.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::OllamaError;
use crate::app::Shared;
use crate::ask::{Ask, Wire};
use crate::model::Model;
use crate::time::rfc3339;

/// What a client that looks for Ollama wants to read.
pub async fn banner() -> &'static str {
    "Ollama is running"
}

/// The version of Ollama's API that is spoken; clients compare it.
pub async fn version() -> Json<Value> {
    Json(json!({ "version": "0.13.0" }))
}

pub async fn tags(State(app): State<Shared>) -> Json<Value> {
    let models: Vec<_> = app.models.all().iter().map(|model| row(model)).collect();
    Json(json!({ "models": models }))
}

pub async fn ps(State(app): State<Shared>) -> Json<Value> {
    let running = |model: &Model| {
        let mut row = row(model);
        row["size_vram"] = json!(0);
        row["context_length"] = model.context().into();
        // Models stay until they are told to go.
        row["expires_at"] = "9999-12-31T23:59:59Z".into();
        row
    };
    let models: Vec<_> = app.models.all().iter().map(|model| running(model)).collect();
    Json(json!({ "models": models }))
}

fn row(model: &Model) -> Value {
    json!({
        "name": model.name,
        "model": model.name,
        "modified_at": rfc3339(model.facts.modified),
        "size": model.facts.bytes,
        "digest": model.facts.digest,
        "details": details(model),
    })
}

fn details(model: &Model) -> Value {
    let facts = &model.facts;
    json!({
        "parent_model": "",
        "format": facts.format,
        "family": facts.family,
        "families": [facts.family],
        "parameter_size": size(facts.parameters),
        "quantization_level": facts.quantization,
    })
}

/// `134515008` as `134.5M`.
fn size(parameters: u64) -> String {
    match parameters as f64 {
        n if n >= 1e9 => format!("{:.1}B", n / 1e9),
        n if n >= 1e6 => format!("{:.1}M", n / 1e6),
        n => format!("{n}"),
    }
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ShowRequest {
    #[serde(alias = "name")]
    model: String,
}

impl Wire for ShowRequest {
    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }
}

pub async fn show(ask: Ask) -> Result<Json<Value>, OllamaError> {
    let (_, model) = ask.read::<ShowRequest>().await?;
    let architecture = model.facts.family.clone();
    let mut capabilities = vec!["completion"];
    if model.template.writes_tools() {
        capabilities.push("tools");
    }
    if model.style.has_reasoning() {
        capabilities.push("thinking");
    }
    let mut info = json!({
        "general.architecture": architecture,
        "general.parameter_count": model.facts.parameters,
    });
    info[format!("{architecture}.context_length")] = model.context().into();
    Ok(Json(json!({
        "modelfile": format!("FROM {}\n", model.name),
        "parameters": "",
        "template": model.template.source(),
        "details": details(&model),
        "model_info": info,
        "capabilities": capabilities,
        "modified_at": rfc3339(model.facts.modified),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_counts_read_as_people_say_them() {
        assert_eq!((size(134_515_008), size(8_030_261_248)), ("134.5M".into(), "8.0B".into()));
    }
}
