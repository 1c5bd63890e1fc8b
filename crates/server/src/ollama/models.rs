//! Questions about the models: `/api/tags`, `/api/ps`, `/api/version`, `/api/status`.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::OllamaError;
use crate::app::Shared;
use crate::embedding::EmbeddingModel;
use crate::error::ApiError;
use crate::guard::Client;
use crate::library::{BlobDigest, Detail, Installed, Library};
use crate::model::capability::Capability;
use crate::model::derived::Derived;
use crate::model::{Model, ModelFacts, Visible};
use crate::time::rfc3339;

/// The version of Ollama whose API is spoken; clients compare it, and some ask for a least one (Codex: 0.13.4).
pub const OLLAMA_VERSION: &str = "0.32.15";

/// When models go that stay until they are told to.
const NEVER: &str = "9999-12-31T23:59:59Z";

/// What a client that looks for Ollama wants to read.
pub async fn banner() -> &'static str {
    "Ollama is running"
}

/// The version that clients compare, and whose server it really is.
pub async fn version() -> Json<Value> {
    Json(json!({ "version": OLLAMA_VERSION, "ropeway": env!("CARGO_PKG_VERSION") }))
}

/// Whether models of Ollama's cloud may be asked, which they may not.
pub async fn status() -> Json<Value> {
    Json(json!({ "cloud": { "disabled": true, "source": "none" } }))
}

/// The models on disk, those made of them, and those served from elsewhere.
pub async fn tags(State(app): State<Shared>, client: Client) -> Result<Json<Value>, OllamaError> {
    let derived = app.models.derived();
    let bases: Vec<_> = derived.iter().map(|model| model.from.clone()).collect();
    let (installed, sent) = match &app.shelf {
        Some(shelf) => shelf.with(|library| on_disk(library, bases)).await?,
        None => Default::default(),
    };
    let visible = app.models.visible_to(client.rights());
    let on_disk = installed.iter().filter(|model| visible.has(&model.name));
    let mut rows: Vec<_> = on_disk.map(|model| listed(&model.name, &model.facts)).collect();
    rows.extend(derived.iter().filter(|model| visible.has(&model.name)).map(|model| {
        let mut row = listed(&model.name, &facts_of(model, installed.iter().chain(&sent), &app));
        row["details"]["parent_model"] = model.from.clone().into();
        row
    }));
    let served = visible.all();
    let elsewhere = served.iter().filter(|model| installed.iter().all(|other| other.name != model.name));
    let elsewhere = elsewhere.filter(|model| !is_uploaded(&model.name));
    rows.extend(elsewhere.map(|model| {
        let facts = ModelFacts { capabilities: model.capabilities(), ..model.facts.clone() };
        listed(&model.name, &facts)
    }));
    Ok(Json(json!({ "models": rows })))
}

/// The models on disk; and files that clients sent, as far as these models are made of them.
fn on_disk(library: &dyn Library, bases: Vec<String>) -> Result<(Vec<Installed>, Vec<Installed>), ApiError> {
    let sent = bases.into_iter().filter(|base| is_uploaded(base));
    let described = sent.filter_map(|base| library.describe(&base, Detail::Brief).ok());
    let sent = described.map(|file| Installed { name: file.name, facts: file.facts }).collect();
    Ok((library.installed()?, sent))
}

/// What is known of the files behind a derived model, with its own time and without a digest of its own.
fn facts_of<'a>(
    model: &Derived,
    mut on_disk: impl Iterator<Item = &'a Installed>,
    app: &Shared,
) -> ModelFacts {
    let on_disk = on_disk.find(|other| other.name == model.from).map(|other| other.facts.clone());
    let served = || {
        let served = app.models.loaded(&model.from)?;
        Some(ModelFacts { capabilities: served.capabilities(), ..served.facts.clone() })
    };
    let facts = on_disk.or_else(served).unwrap_or_default();
    let capabilities = model.capabilities().unwrap_or_else(|| facts.capabilities.clone());
    ModelFacts { capabilities, modified: model.created, digest: String::new(), ..facts }
}

/// A row of `/api/tags`.
fn listed(name: &str, facts: &ModelFacts) -> Value {
    let mut row = row(name, facts);
    row["capabilities"] = capability_names(&facts.capabilities);
    row
}

/// The models in memory.
pub async fn ps(State(app): State<Shared>, client: Client) -> Json<Value> {
    let visible = app.models.visible_to(client.rights());
    let mut models: Vec<_> =
        visible.all().iter().flat_map(|model| running(model, &app.models.derived(), visible)).collect();
    let embedding = app.embeddings.all().iter().filter(|model| visible.has(&model.name));
    models.extend(embedding.filter_map(|model| embedding_row(model)));
    Json(json!({ "models": models }))
}

/// A loaded model's row; that of a file without a name has the names of the models made of it.
fn running(model: &Model, derived: &[std::sync::Arc<Derived>], visible: Visible<'_>) -> Vec<Value> {
    let row_named = |name: &str| {
        let mut row = row(name, &model.facts);
        row["size"] = model.facts.memory.into();
        row["size_vram"] = json!(0);
        row["context_length"] = model.context().into();
        row["expires_at"] = model.lease.expires().map_or(NEVER.into(), |time| rfc3339(time).into());
        row
    };
    if !is_uploaded(&model.name) {
        return vec![row_named(&model.name)];
    }
    let made_of_it = derived.iter().filter(|other| other.from == model.name && visible.has(&other.name));
    made_of_it.map(|other| row_named(&other.name)).collect()
}

fn embedding_row(model: &EmbeddingModel) -> Option<Value> {
    let ready = model.loaded()?;
    let mut row = row(&model.name, &ready.facts);
    row["size_vram"] = json!(0);
    row["context_length"] = ready.embedder.facts().max_tokens.into();
    row["expires_at"] = NEVER.into();
    Some(row)
}

/// Whether it is a file that a client sent, which has its digest for a name.
fn is_uploaded(name: &str) -> bool {
    name.starts_with("sha256:")
}

fn row(name: &str, facts: &ModelFacts) -> Value {
    let listed = tagged(name);
    json!({
        "name": listed,
        "model": listed,
        "modified_at": rfc3339(facts.modified),
        "size": facts.bytes,
        "digest": digest(name, facts),
        "details": details(facts),
    })
}

/// A name as Ollama lists it, which is never without a tag: some clients add one to what they ask for, and look for that.
fn tagged(name: &str) -> String {
    if name.contains(':') { name.to_owned() } else { format!("{name}:latest") }
}

/// 64 hexadecimal digits: Ollama's command line shows the first twelve and fails without them. Those of the weights where
/// they are known, else of the name.
fn digest(name: &str, facts: &ModelFacts) -> String {
    if facts.digest.len() == 64 {
        return facts.digest.clone();
    }
    BlobDigest::of_sum(&Sha256::digest(name)).hex().to_owned()
}

/// What clients show of a model.
pub fn details(facts: &ModelFacts) -> Value {
    json!({
        "parent_model": "",
        "format": facts.format,
        "family": facts.family,
        "families": [facts.family],
        "parameter_size": size(facts.parameters),
        "quantization_level": facts.quantization,
    })
}

/// What a model can do, as clients read it.
pub fn capability_names(capabilities: &[Capability]) -> Value {
    capabilities.iter().map(|capability| capability.name()).collect()
}

/// `134515008` as `134.5M`.
fn size(parameters: u64) -> String {
    match parameters as f64 {
        n if n >= 1e9 => format!("{:.1}B", n / 1e9),
        n if n >= 1e6 => format!("{:.1}M", n / 1e6),
        n => format!("{n}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_counts_read_as_people_say_them() {
        assert_eq!((size(134_515_008), size(8_030_261_248)), ("134.5M".into(), "8.0B".into()));
    }

    #[test]
    fn every_model_has_a_digest_of_64_digits_that_stays_the_same() {
        let unknown = digest("mario", &ModelFacts::default());
        assert_eq!((unknown.len(), &unknown), (64, &digest("mario", &ModelFacts::default())));
        assert_ne!(unknown, digest("luigi", &ModelFacts::default()));
        let known = ModelFacts { digest: "ab".repeat(32), ..ModelFacts::default() };
        assert_eq!(digest("mario", &known), "ab".repeat(32));
    }
}
