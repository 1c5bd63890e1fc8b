//! `POST /api/embed`, and `POST /api/embeddings` of old.

use std::time::Instant;

use axum::Json;
use ropeway_embed::{EmbedOptions, TooLong};
use ropeway_openai::embeddings::MOST_TEXTS;
use ropeway_openai::texts::{TextInput, Texts};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::OllamaError;
use super::stats::nanoseconds;
use super::tolerance::null_is_default;
use crate::ask::{Ask, Wire};
use crate::embedding::embed;
use crate::intake::shape::{Field, Holds};

/// What clients send today.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct EmbedRequest {
    model: String,
    #[serde(default)]
    #[schema(value_type = Value)]
    input: Option<Texts<MOST_TEXTS>>,
    /// Whether a text that is too long is cut, which it is unless told otherwise.
    truncate: Option<bool>,
    dimensions: Option<usize>,
}

impl Wire for EmbedRequest {
    const FIELDS: &'static [Field] = &[Field::new("input", Holds::Embedded(MOST_TEXTS))];

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }
}

pub async fn create(mut ask: Ask) -> Result<Json<Value>, OllamaError> {
    let request: EmbedRequest = ask.body().await?;
    let start = Instant::now();
    let (model, caller) = ask.embedding_model(&request)?;
    let texts = request.input.unwrap_or_default().read("input")?;
    let embedder = model.embedder().await?;
    let loaded = start.elapsed();
    let too_long = if request.truncate == Some(false) { TooLong::Refuse } else { TooLong::Truncate };
    // Ollama's vectors have length 1, whatever the model says.
    let options = EmbedOptions {
        // Go's word for "all of them".
        dimensions: request.dimensions.filter(|dimensions| *dimensions > 0),
        too_long,
        normalise: Some(true),
        ..EmbedOptions::default()
    };
    let embeddings = embed(&embedder, texts, options, &caller).await?;
    let tokens: usize = embeddings.iter().map(|embedding| embedding.tokens).sum();
    Ok(Json(json!({
        "model": model.name,
        "embeddings": embeddings.into_iter().map(|embedding| embedding.vector).collect::<Vec<_>>(),
        "total_duration": nanoseconds(start.elapsed()),
        "load_duration": nanoseconds(loaded),
        "prompt_eval_count": tokens,
    })))
}

/// What clients sent once.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct LegacyRequest {
    model: String,
    #[serde(default, deserialize_with = "null_is_default")]
    prompt: String,
}

impl Wire for LegacyRequest {
    const FIELDS: &'static [Field] = &[Field::new("prompt", Holds::Embedded(1))];

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }
}

pub async fn legacy(mut ask: Ask) -> Result<Json<Value>, OllamaError> {
    let request: LegacyRequest = ask.body().await?;
    let (model, caller) = ask.embedding_model(&request)?;
    let embedder = model.embedder().await?;
    if request.prompt.is_empty() {
        return Ok(Json(json!({ "embedding": [] })));
    }
    let texts = vec![TextInput::Text(request.prompt)];
    let mut embeddings = embed(&embedder, texts, EmbedOptions::default(), &caller).await?;
    Ok(Json(json!({ "embedding": embeddings.pop().map(|embedding| embedding.vector) })))
}
