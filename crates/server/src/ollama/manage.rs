//! What changes the models on disk: `/api/pull`, `/api/copy`, `/api/delete`; and `/api/push`, which is turned down.

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::tolerance::{named, no_model};
use super::{OllamaError, create};
use crate::app::Shared;
use crate::ask::{Ask, Wire};
use crate::error::{ApiError, Kind};
use crate::library::{self, Fetching, Follower};
use crate::model::derived::Derived;
use crate::model::{Alias, same_name, unix_seconds};
use crate::ndjson;

/// What clients send about a model; of most fields, Go's clients send empty ones.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct NameRequest {
    model: Option<String>,
    /// The field of old.
    name: Option<String>,
    stream: Option<bool>,
}

impl Wire for NameRequest {
    fn model(&self) -> Option<&str> {
        named(self.model.as_deref(), self.name.as_deref())
    }
}

impl NameRequest {
    fn name(&self) -> Result<String, ApiError> {
        self.model().map(str::to_owned).ok_or_else(no_model)
    }
}

/// Fetches a model; loads nothing. It is stopped when the client leaves, unless others wait for the same.
pub async fn pull(mut ask: Ask) -> Result<Response, OllamaError> {
    let request: NameRequest = ask.body().await?;
    let name = request.name()?;
    ask.client().check_model(&name)?;
    let mut told = ask.app().shelf()?.fetch(name).await?;
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
    if let Some(file) = &fetching.file {
        line["digest"] = file.digest.clone().into();
        (line["total"], line["completed"]) = (file.total.into(), file.done.into());
    }
    line
}

/// Nothing leaves this machine.
pub async fn push(mut ask: Ask) -> Result<(), OllamaError> {
    let request: NameRequest = ask.body().await?;
    let name = request.name()?;
    let what = format!("{name} can't be pushed: this server fetches models and publishes none");
    Err(ApiError::new(Kind::Forbidden, what).into())
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

/// Gives a model one more name. A copy of a derived model is a model of its own.
pub async fn copy(mut ask: Ask) -> Result<(), OllamaError> {
    let CopyRequest { source, destination } = ask.body().await?;
    let app = ask.app();
    let name = destination.clone();
    if let Some(derived) = app.models.derived_named(&source) {
        let copy = Derived { name: destination, created: unix_seconds(), ..(*derived).clone() };
        return Ok(create::keep(app, copy).await?);
    }
    if app.models.derived().iter().any(|derived| derived.name == destination) {
        return Err(ApiError::new(Kind::Conflict, format!("{destination:?} is a model already")).into());
    }
    let model = app.shelf()?.with(move |library| library.copy(&source, &name)).await?;
    app.models.add_copy(Alias { pattern: destination, model });
    Ok(())
}

/// Deletes a model from the disk, and from memory if it is there.
pub async fn delete(mut ask: Ask) -> Result<(), OllamaError> {
    let name = ask.body::<NameRequest>().await?.name()?;
    let app = ask.app();
    let shelf = app.shelf()?;
    if let Some(derived) = app.models.derived_named(&name) {
        let name = derived.name.clone();
        shelf.with(move |library| library.forget_derived(&name)).await?;
        app.models.remove_derived(&derived.name);
        return Ok(());
    }
    let made_of_it: Vec<_> = made_of(app, &name).collect();
    if !made_of_it.is_empty() {
        let what = format!("{} made of {name:?}; delete that first", is_or_are(&made_of_it));
        return Err(ApiError::new(Kind::Conflict, what).into());
    }
    let gone = shelf.with(move |library| library.delete(&name)).await?;
    if let Some(model) = app.models.all().iter().find(|model| model.name == gone) {
        library::unload(app, model);
    }
    app.models.remove_copy(&gone);
    Ok(())
}

/// The derived models that would be nothing without the model of this name. Other names of it may go.
fn made_of<'a>(app: &Shared, name: &'a str) -> impl Iterator<Item = String> + use<'a> {
    let derived = app.models.derived().into_iter();
    derived.filter(move |derived| same_name(&derived.from, name)).map(|derived| derived.name.clone())
}

fn is_or_are(names: &[String]) -> String {
    format!("{} {}", names.join(", "), if names.len() == 1 { "is" } else { "are" })
}
