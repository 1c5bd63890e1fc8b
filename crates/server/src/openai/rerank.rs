//! `POST /v1/rerank`, as Jina and Cohere have it: documents in the order in which they fit a query.

use axum::Json;
use ropeway_generation::unique;
use ropeway_openai::embeddings::{MOST_TEXTS, at_most};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::OpenAiError;
use crate::ask::{Ask, Wire};
use crate::embedding::rank;
use crate::error::ApiError;
use crate::intake::shape::{Field, Holds};

/// What clients send.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct RerankRequest {
    model: Option<String>,
    query: String,
    documents: Vec<Document>,
    top_n: Option<usize>,
    return_documents: Option<bool>,
    user: Option<String>,
}

/// A document: its text, or an object around it.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
enum Document {
    Text(String),
    Object { text: String },
}

impl Document {
    fn into_text(self) -> String {
        match self {
            Document::Text(text) | Document::Object { text } => text,
        }
    }
}

impl Wire for RerankRequest {
    const FIELDS: &'static [Field] =
        &[Field::new("query", Holds::Embedded(1)), Field::new("documents", Holds::Embedded(MOST_TEXTS))];

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
}

pub async fn create(mut ask: Ask) -> Result<Json<Value>, OpenAiError> {
    let request: RerankRequest = ask.body().await?;
    let (model, caller) = ask.embedding_model(&request)?;
    if request.documents.is_empty() {
        return Err(ApiError::invalid("documents is empty; send at least one").about("documents").into());
    }
    at_most(request.documents.len(), "documents")?;
    let embedder = model.embedder().await?;
    if !embedder.facts().can_score {
        let what = format!(
            "{} embeds texts but can't rank them; serve a cross-encoder with --embed-model, such as \
             cross-encoder/ms-marco-MiniLM-L6-v2",
            model.name
        );
        return Err(ApiError::invalid(what).about("model").into());
    }
    let documents: Vec<_> = request.documents.into_iter().map(Document::into_text).collect();
    let scores = rank(&embedder, request.query, documents.clone(), &caller).await?;
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].relevance.total_cmp(&scores[*a].relevance));
    order.truncate(request.top_n.unwrap_or(usize::MAX));
    let result = |&index: &usize| {
        let mut result = json!({ "index": index, "relevance_score": scores[index].relevance });
        if request.return_documents == Some(true) {
            result["document"] = json!({ "text": documents[index] });
        }
        result
    };
    let tokens: usize = scores.iter().map(|score| score.tokens).sum();
    Ok(Json(json!({
        "id": unique("rerank-"),
        "model": model.name,
        "results": order.iter().map(result).collect::<Vec<_>>(),
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    })))
}
