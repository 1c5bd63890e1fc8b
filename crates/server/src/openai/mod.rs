//! The OpenAI API: chat completions, completions, responses, embeddings, ranking, tokens, models.
//!
//! Unknown fields are ignored; a known one that can't be honoured is an error, never silence.

mod chat;
mod completions;
mod embeddings;
mod error;
mod logprobs;
mod messages;
mod models;
mod rerank;
mod responses;
mod sampling;
pub mod sse;
mod tokenize;
mod usage;

pub use error::OpenAiError;

use crate::routes::Routes;

/// Its routes.
pub fn routes() -> Routes {
    Routes::default()
        .get("/v1/models", models::list)
        .get("/v1/models/{*id}", models::one)
        .post("/v1/chat/completions", chat::create)
        .post("/v1/completions", completions::create)
        .post("/v1/embeddings", embeddings::create)
        .post("/v1/rerank", rerank::create)
        .post("/v1/responses", responses::create)
        .post("/tokenize", tokenize::tokenize)
        .post("/detokenize", tokenize::detokenize)
}
