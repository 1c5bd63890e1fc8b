//! Questions about the models: `/api/tags`, `/api/ps`, `/api/show`, `/api/version`.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::OllamaError;
use crate::app::Shared;
use crate::ask::{Ask, Wire};
use crate::embedding::{EmbeddingModel, Ready};
use crate::error::ApiError;
use crate::guard::Client;
use crate::library::Library;
use crate::model::{Model, ModelFacts};
use crate::time::rfc3339;

/// What a client that looks for Ollama wants to read.
pub async fn banner() -> &'static str {
    "Ollama is running"
}

/// The version of Ollama's API that is spoken; clients compare it.
pub async fn version() -> Json<Value> {
    Json(json!({ "version": "0.13.0" }))
}

/// The models on disk, and those served from elsewhere.
pub async fn tags(State(app): State<Shared>, client: Client) -> Result<Json<Value>, OllamaError> {
    let installed = match &app.shelf {
        Some(shelf) => shelf.with(Library::installed).await?,
        None => Vec::new(),
    };
    let visible = app.models.visible_to(client.rights());
    let on_disk = installed.iter().filter(|model| visible.has(&model.name));
    let mut rows: Vec<_> = on_disk.map(|model| row(&model.name, &model.facts)).collect();
    let served = visible.all();
    let elsewhere = served.iter().filter(|model| installed.iter().all(|other| other.name != model.name));
    rows.extend(elsewhere.map(|model| row(&model.name, &model.facts)));
    Ok(Json(json!({ "models": rows })))
}

/// The models in memory.
pub async fn ps(State(app): State<Shared>, client: Client) -> Json<Value> {
    let running = |model: &Model| {
        let mut row = row(&model.name, &model.facts);
        row["size"] = model.facts.memory.into();
        row["size_vram"] = json!(0);
        row["context_length"] = model.context().into();
        row["expires_at"] = model.lease.expires().map_or(NEVER.into(), |time| rfc3339(time).into());
        row
    };
    let embeds = |model: &EmbeddingModel| {
        let ready = model.loaded()?;
        let mut row = row(&model.name, &ready.facts);
        row["size_vram"] = json!(0);
        row["context_length"] = ready.embedder.facts().max_tokens.into();
        row["expires_at"] = NEVER.into();
        Some(row)
    };
    let visible = app.models.visible_to(client.rights());
    let mut models: Vec<_> = visible.all().iter().map(|model| running(model)).collect();
    let embedding = app.embeddings.all().iter().filter(|model| visible.has(&model.name));
    models.extend(embedding.filter_map(|model| embeds(model)));
    Json(json!({ "models": models }))
}

/// When models go that stay until they are told to.
const NEVER: &str = "9999-12-31T23:59:59Z";

fn row(name: &str, facts: &ModelFacts) -> Value {
    json!({
        "name": name,
        "model": name,
        "modified_at": rfc3339(facts.modified),
        "size": facts.bytes,
        "digest": facts.digest,
        "details": details(facts),
    })
}

fn details(facts: &ModelFacts) -> Value {
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

pub async fn show(mut ask: Ask) -> Result<Json<Value>, OllamaError> {
    let request: ShowRequest = ask.body().await?;
    let visible = ask.app().models.visible_to(ask.client().rights());
    let embedding = ask.app().embeddings.named(&request.model);
    if let Some(model) = embedding.filter(|model| visible.has(&model.name)) {
        return Ok(Json(show_embedding(model).await?));
    }
    let model = visible.find(&request.model)?;
    let architecture = model.facts.family.clone();
    let mut capabilities = vec!["completion"];
    if model.generator.template.writes_tools() {
        capabilities.push("tools");
    }
    if model.generator.style.has_reasoning() {
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
        "template": model.generator.template.source(),
        "details": details(&model.facts),
        "model_info": info,
        "capabilities": capabilities,
        "modified_at": rfc3339(model.facts.modified),
    })))
}

async fn show_embedding(model: &EmbeddingModel) -> Result<Value, ApiError> {
    let Ready { embedder, facts } = model.ready().await?;
    let of_model = embedder.facts();
    let mut info =
        json!({ "general.architecture": facts.family, "general.parameter_count": facts.parameters });
    info[format!("{}.context_length", facts.family)] = of_model.max_tokens.into();
    info[format!("{}.embedding_length", facts.family)] = of_model.dimensions.into();
    Ok(json!({
        "modelfile": format!("FROM {}\n", model.name),
        "parameters": "",
        "template": "",
        "details": details(facts),
        "model_info": info,
        "capabilities": ["embedding"],
        "modified_at": rfc3339(facts.modified),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_counts_read_as_people_say_them() {
        assert_eq!((size(134_515_008), size(8_030_261_248)), ("134.5M".into(), "8.0B".into()));
    }
}
