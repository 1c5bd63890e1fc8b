//! `POST /api/show`: what is known of a model, whether it is loaded or not. Nothing is loaded by it.

use std::fmt::Write;

use axum::Json;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::OllamaError;
use super::models::{capability_names, details};
use super::tolerance::{named, no_model};
use crate::app::Shared;
use crate::ask::{Ask, Wire};
use crate::embedding::{EmbeddingModel, Ready};
use crate::error::{ApiError, Kind};
use crate::guard::Client;
use crate::library::{Description, Detail};
use crate::model::capability::Capability;
use crate::model::derived::Derived;
use crate::model::{Model, ModelFacts};
use crate::time::rfc3339;

/// Columns of a parameter's name, as in Ollama's text.
const NAME_WIDTH: usize = 30;

/// What clients send.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ShowRequest {
    model: Option<String>,
    /// The field of old.
    name: Option<String>,
    /// Whether long lists are told as well: the vocabulary, every tensor.
    verbose: Option<bool>,
}

impl Wire for ShowRequest {
    fn model(&self) -> Option<&str> {
        named(self.model.as_deref(), self.name.as_deref())
    }
}

pub async fn show(mut ask: Ask) -> Result<Json<Value>, OllamaError> {
    let request: ShowRequest = ask.body().await?;
    let name = request.model().ok_or_else(no_model)?;
    let detail = if request.verbose == Some(true) { Detail::Full } else { Detail::Brief };
    let visible = ask.app().models.visible_to(ask.client().rights());
    let derived = ask.app().models.derived_named(name);
    if derived.as_ref().is_some_and(|derived| !visible.has(&derived.name)) {
        return Err(visible.absent(name).into());
    }
    let mut description = describe(ask.app(), ask.client(), name, detail).await?;
    if derived.is_none() && !visible.has(&description.name) {
        return Err(visible.absent(name).into());
    }
    if let Some(capabilities) = derived.as_ref().and_then(|derived| derived.capabilities()) {
        description.facts.capabilities = capabilities;
    }
    if let Some(model) = ask.app().models.loaded(name) {
        of_memory(&mut description, &model);
    }
    let derived = derived.map_or_else(|| plain(&description.name), |derived| (*derived).clone());
    Ok(Json(body(&description, &derived)))
}

/// A model made of itself, with nothing added.
fn plain(name: &str) -> Derived {
    Derived { name: name.to_owned(), from: name.to_owned(), ..Derived::default() }
}

/// What the files say, or memory where there are none of the library's.
pub async fn describe(
    app: &Shared,
    client: &Client,
    name: &str,
    detail: Detail,
) -> Result<Description, ApiError> {
    let base = app.models.base_of(name);
    let on_disk = match &app.shelf {
        Some(shelf) => shelf.with(move |library| library.describe(&base, detail)).await,
        None => Err(ApiError::new(Kind::NotFound, "")),
    };
    let absent = match on_disk {
        Ok(description) => return Ok(description),
        Err(error) => error,
    };
    if let Some(model) = app.embeddings.named(name) {
        return of_embedding(model).await;
    }
    match app.models.visible_to(client.rights()).find(name) {
        Ok(model) => Ok(of_model(&model)),
        Err(error) if absent.message.is_empty() || error.kind != Kind::NotFound => Err(error),
        Err(_) => Err(absent),
    }
}

/// What is known of a model in memory only.
fn of_model(model: &Model) -> Description {
    let facts = ModelFacts { capabilities: model.capabilities(), ..model.facts.clone() };
    let name = model.derived.as_ref().map_or(&model.name, |derived| &derived.from);
    Description { name: name.clone(), info: basic_info(&facts), facts, ..Description::default() }
}

async fn of_embedding(model: &EmbeddingModel) -> Result<Description, ApiError> {
    let Ready { embedder, facts } = model.ready().await?;
    let facts = ModelFacts { capabilities: vec![Capability::Embedding], ..facts.clone() };
    let (mut info, of_model) = (basic_info(&facts), embedder.facts());
    info.insert(format!("{}.context_length", facts.family), of_model.max_tokens.into());
    info.insert(format!("{}.embedding_length", facts.family), of_model.dimensions.into());
    Ok(Description { name: model.name.clone(), facts, info, ..Description::default() })
}

fn basic_info(facts: &ModelFacts) -> Map<String, Value> {
    let mut info = Map::new();
    info.insert("general.architecture".into(), facts.family.clone().into());
    info.insert("general.parameter_count".into(), facts.parameters.into());
    info
}

/// What memory knows better: the context that holds, and the template that is used.
fn of_memory(description: &mut Description, model: &Model) {
    let family = &description.facts.family;
    description.info.insert(format!("{family}.context_length"), model.context().into());
    if let Ok(model) = model.generator.token_model() {
        model.template.source().clone_into(&mut description.template);
    }
    description.facts.capabilities = model.capabilities();
}

fn body(description: &Description, derived: &Derived) -> Value {
    let Description { facts, template, info, license, tensors, .. } = description;
    let template = if derived.template.is_empty() { template } else { &derived.template };
    let modified = if derived.created > 0 { derived.created } else { facts.modified };
    let mut body = json!({
        "modelfile": modelfile(derived, template),
        "parameters": parameters(&derived.parameters),
        "template": template,
        "details": details(facts),
        "model_info": info,
        "capabilities": capability_names(&facts.capabilities),
        "modified_at": rfc3339(modified),
    });
    let licences = derived.license.iter().chain(Some(license).filter(|license| !license.is_empty()));
    let licences: Vec<_> = licences.map(String::as_str).collect();
    for (field, value, is_given) in [
        ("license", licences.join("\n").into(), !licences.is_empty()),
        ("system", derived.system.clone().into(), !derived.system.is_empty()),
        ("messages", derived.messages.clone().into(), !derived.messages.is_empty()),
        ("tensors", tensors.clone().into(), !tensors.is_empty()),
    ] {
        if is_given {
            body[field] = value;
        }
    }
    if derived.from != derived.name {
        body["details"]["parent_model"] = derived.from.clone().into();
    }
    body
}

/// One line per value, a list's values one by one.
fn parameters(given: &Map<String, Value>) -> String {
    lines(given).map(|(name, value)| format!("{name:NAME_WIDTH$} {value}")).collect::<Vec<_>>().join("\n")
}

fn lines(given: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    given.iter().flat_map(|(name, value)| match value {
        Value::Array(items) => items.iter().map(|item| (name, item)).collect::<Vec<_>>(),
        one => vec![(name, one)],
    })
}

/// The text that Ollama's users write to make such a model.
fn modelfile(derived: &Derived, template: &str) -> String {
    let mut text = format!("# FROM {}\n\nFROM {}\n", derived.name, derived.from);
    for (word, said) in [("TEMPLATE", template), ("SYSTEM", derived.system.as_str())] {
        if !said.is_empty() {
            let _ = writeln!(text, "{word} \"\"\"{said}\"\"\"");
        }
    }
    for (name, value) in lines(&derived.parameters) {
        let _ = writeln!(text, "PARAMETER {name} {value}");
    }
    for message in &derived.messages {
        let (role, content) = (&message["role"], &message["content"]);
        let _ = writeln!(
            text,
            "MESSAGE {} {}",
            role.as_str().unwrap_or_default(),
            content.as_str().unwrap_or_default()
        );
    }
    for license in &derived.license {
        let _ = writeln!(text, "LICENSE \"\"\"{license}\"\"\"");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_written_one_a_line() {
        let given = json!({"temperature": 0.5, "stop": ["a", "b"]});
        let given = given.as_object().expect("an object");
        let indented = |name: &str| format!("{name:30}");
        let expected = [("temperature", "0.5"), ("stop", "\"a\""), ("stop", "\"b\"")];
        let expected = expected.map(|(name, value)| format!("{} {value}", indented(name)));
        assert_eq!(parameters(given), expected.join("\n"));
    }
}
