//! What changes the models on disk: `/api/pull`, `/api/copy`, `/api/delete`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::OllamaError;
use crate::ask::{Ask, Wire};
use crate::error::{ApiError, Kind};
use crate::library::{self, Fetching, Follower};
use crate::model::Alias;
use crate::ndjson;

/// A model, by today's field or by the one of old.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct NameRequest {
    #[serde(alias = "name")]
    model: String,
    stream: Option<bool>,
}

impl Wire for NameRequest {
    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }
}

/// Fetches a model; loads nothing. It is stopped when the client leaves, unless others wait for the same.
pub async fn pull(mut ask: Ask) -> Result<Response, OllamaError> {
    let request: NameRequest = ask.body().await?;
    ask.client().check_model(&request.model)?;
    let mut told = ask.app().shelf()?.fetch(request.model).await?;
    if request.stream != Some(false) {
        return Ok(ndjson::respond(lines(told)));
    }
    let mut last = None;
    while let Some(line) = told.next().await {
        last = Some(line?);
    }
    let last = last.ok_or_else(|| ApiError::new(Kind::Internal, "the download ended without a word"))?;
    Ok(Json(line(&last)).into_response())
}

fn lines(told: Follower) -> impl stream::Stream<Item = Value> + Send + 'static {
    stream::unfold(told, |mut told| async move {
        let next = match told.next().await? {
            Ok(fetching) => line(&fetching),
            Err(error) => OllamaError(error).body(),
        };
        Some((next, told))
    })
}

fn line(fetching: &Fetching) -> Value {
    let mut line = json!({ "status": fetching.status });
    if let Some((done, total)) = fetching.bytes {
        (line["total"], line["completed"]) = (total.into(), done.into());
    }
    line
}

/// What clients send to give a model another name.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct CopyRequest {
    source: String,
    destination: String,
}

impl Wire for CopyRequest {
    fn model(&self) -> Option<&str> {
        Some(&self.source)
    }
}

/// Gives a model one more name.
pub async fn copy(mut ask: Ask) -> Result<(), OllamaError> {
    let CopyRequest { source, destination } = ask.body().await?;
    let name = destination.clone();
    let model = ask.app().shelf()?.with(move |library| library.copy(&source, &name)).await?;
    ask.app().models.add_copy(Alias { pattern: destination, model });
    Ok(())
}

/// Deletes a model from the disk, and from memory if it is there.
pub async fn delete(mut ask: Ask) -> Result<(), OllamaError> {
    let request: NameRequest = ask.body().await?;
    let app = ask.app();
    let gone = app.shelf()?.with(move |library| library.delete(&request.model)).await?;
    if let Some(model) = app.models.all().iter().find(|model| model.name == gone) {
        library::unload(app, model);
    }
    app.models.remove_copy(&gone);
    Ok(())
}
