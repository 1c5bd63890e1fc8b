//! `POST /v1/embeddings`.

use axum::Json;
use ropeway_openai::EmbeddingsRequest;
use ropeway_openai::embeddings::{EmbeddingJob, MOST_TEXTS, response};
use serde_json::Value;

use super::OpenAiError;
use crate::ask::{Ask, Wire};
use crate::embedding::embed;
use crate::intake::shape::{Field, Holds};

impl Wire for EmbeddingsRequest {
    const FIELDS: &'static [Field] = &[Field::new("input", Holds::Embedded(MOST_TEXTS))];

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    fn priority(&self) -> Option<&str> {
        self.priority.as_deref()
    }
}

pub async fn create(mut ask: Ask) -> Result<Json<Value>, OpenAiError> {
    let request: EmbeddingsRequest = ask.body().await?;
    let (ids_of, agent) = (ask.app().embedding_ids, ask.user_agent().map(str::to_owned));
    let (model, caller) = ask.embedding_model(&request)?;
    let EmbeddingJob { texts, options, encoding } = request.read()?;
    let texts = ids_of.read(agent.as_deref(), texts);
    let embedder = model.embedder().await?;
    let embeddings = embed(&embedder, texts, options, &caller).await?;
    Ok(Json(response(&model.name, encoding, &embeddings)))
}
