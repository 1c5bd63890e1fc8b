//! `POST /v1/embeddings`.

use axum::Json;
use ropeway_openai::EmbeddingsRequest;
use ropeway_openai::embeddings::{EmbeddingJob, MOST_TEXTS, response};
use ropeway_openai::foreign_ids::{self, IdsOf};
use ropeway_openai::texts::TextInput;
use serde_json::Value;

use super::OpenAiError;
use crate::ask::{Ask, Wire};
use crate::caller::Caller;
use crate::embedding::embed;
use crate::error::ApiError;
use crate::intake::shape::{Field, Holds};
use crate::offload::{Effort, offload};

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
    let texts = own_words(texts, ids_of, agent, &caller).await?;
    let embedder = model.embedder().await?;
    let embeddings = embed(&embedder, texts, options, &caller).await?;
    Ok(Json(response(&model.name, encoding, &embeddings)))
}

/// The texts, with ids of OpenAI's tokenizer turned into what they stand for.
async fn own_words(
    texts: Vec<TextInput>,
    ids_of: IdsOf,
    agent: Option<String>,
    caller: &Caller,
) -> Result<Vec<TextInput>, ApiError> {
    let ids = texts.iter().map(|text| if let TextInput::Tokens(ids) = text { ids.len() } else { 0 }).sum();
    if ids == 0 || !ids_of.are_foreign(agent.as_deref()) {
        return Ok(texts);
    }
    caller.intake.cover(foreign_ids::most_bytes(ids))?;
    let read = move |_: &_| Ok::<_, ApiError>(ids_of.read(agent.as_deref(), texts));
    offload(&caller.intake, Effort::Bytes(ids), read).await
}
