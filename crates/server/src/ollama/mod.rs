//! The Ollama API: chat, generate, and questions about the models.
//!
//! Streams by default, as lines of JSON.

mod chat;
mod error;
mod generate;
mod models;
mod options;
mod stats;

use axum::Router;
use axum::routing::{get, post};

pub use error::OllamaError;
pub use models::banner;

use crate::app::Shared;

/// Its routes.
pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/", get(banner))
        .route("/api/chat", post(chat::create))
        .route("/api/generate", post(generate::create))
        .route("/api/tags", get(models::tags))
        .route("/api/ps", get(models::ps))
        .route("/api/show", post(models::show))
        .route("/api/version", get(models::version))
}
