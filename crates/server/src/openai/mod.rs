//! The OpenAI API: chat completions, completions, models.
//!
//! Unknown fields are ignored; a known one that can't be honoured is an error, never silence.

mod chat;
mod completions;
mod error;
mod logprobs;
mod messages;
mod models;
mod sampling;
pub mod sse;
mod usage;

use axum::Router;
use axum::routing::{get, post};

pub use error::OpenAiError;

use crate::app::Shared;

/// Its routes.
pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::one))
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/completions", post(completions::create))
}
