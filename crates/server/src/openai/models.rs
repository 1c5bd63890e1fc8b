//! `GET /v1/models`: what a question may name. Where questions load models, those on disk are among them.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use serde_json::{Value, json};

use super::OpenAiError;
use crate::anthropic;
use crate::app::Shared;
use crate::error::ApiError;
use crate::guard::Client;
use crate::library::Library;
use crate::model::capability::Capability;
use crate::model::{Model, Visible, same_name};

pub async fn list(
    State(app): State<Shared>,
    client: Client,
    headers: HeaderMap,
) -> Result<Json<Value>, OpenAiError> {
    let visible = app.models.visible_to(client.rights());
    if headers.contains_key("anthropic-version") {
        return Ok(Json(anthropic::list_models(&visible)));
    }
    let mut data: Vec<_> = visible.all().iter().map(|model| describe(model)).collect();
    data.extend(aliased(&app, visible));
    data.extend(others(&app, visible).await?);
    Ok(Json(json!({ "object": "list", "data": data })))
}

pub async fn one(
    State(app): State<Shared>,
    client: Client,
    Path(id): Path<String>,
) -> Result<Json<Value>, OpenAiError> {
    let visible = app.models.visible_to(client.rights());
    let others = others(&app, visible).await?;
    let is_meant = |other: &&Value| other["id"].as_str().is_some_and(|name| same_name(name, &id));
    match (visible.loaded(&id), others.iter().find(is_meant)) {
        (Some(model), _) => Ok(Json(describe(&model))),
        (None, Some(other)) => Ok(Json(other.clone())),
        (None, None) => Ok(Json(describe(&*visible.find(&id)?))),
    }
}

/// Models by the other names that the operator gave them, as far as these are names and not patterns.
fn aliased(app: &Shared, visible: Visible<'_>) -> Vec<Value> {
    let is_model = |name: &str| visible.all().iter().any(|model| model.name == name);
    let names = app.models.aliases().iter();
    let names = names.filter(|alias| !alias.pattern.ends_with('*') && !is_model(&alias.pattern));
    let described = names.filter_map(|alias| {
        let model = visible.loaded(&alias.model)?;
        let mut row = describe(&model);
        (row["id"], row["root"]) = (alias.pattern.clone().into(), model.name.clone().into());
        Some(row)
    });
    described.collect()
}

/// Models that are not served as such: those that embed, those made of others, and those that a question would load.
async fn others(app: &Shared, visible: Visible<'_>) -> Result<Vec<Value>, ApiError> {
    let served: Vec<_> = visible.all().iter().map(|model| model.name.clone()).collect();
    let embedding = app.embeddings.all();
    let embedding = embedding.iter().map(|model| Other::new(&model.name, model.created, true));
    let derived = app.models.derived();
    let derived = derived.iter().map(|model| Other::new(&model.name, model.created, false));
    let mut all: Vec<_> = embedding.chain(derived).collect();
    if let Some(shelf) = app.shelf.as_ref().filter(|shelf| shelf.loads_on_demand()) {
        let installed = shelf.with(Library::installed).await?;
        all.extend(installed.into_iter().map(|model| {
            let embeds = model.facts.capabilities.contains(&Capability::Embedding);
            Other::new(&model.name, model.facts.modified, embeds)
        }));
    }
    let mut told = served;
    all.retain(|other| {
        let is_new = visible.has(&other.name) && !told.contains(&other.name);
        told.push(other.name.clone());
        is_new
    });
    Ok(all.iter().map(Other::describe).collect())
}

/// A model that is not served as such.
struct Other {
    name: String,
    created: u64,
    /// Whether it embeds, and does not chat.
    embeds: bool,
}

impl Other {
    fn new(name: &str, created: u64, embeds: bool) -> Self {
        Self { name: name.to_owned(), created, embeds }
    }

    fn describe(&self) -> Value {
        let Self { name, created, embeds } = self;
        json!({ "id": name, "object": "model", "created": created, "owned_by": "ropeway", "embeds": embeds })
    }
}

fn describe(model: &Model) -> Value {
    json!({
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "ropeway",
        "max_model_len": model.context(),
        "embeds": false,
    })
}
