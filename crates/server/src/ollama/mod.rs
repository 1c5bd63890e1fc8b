//! The Ollama API: chat, generate, and questions about the models.
//!
//! Streams by default, as lines of JSON.

mod chat;
mod error;
mod generate;
mod models;
mod options;
mod stats;

pub use error::OllamaError;
pub use models::banner;

use crate::routes::Routes;

/// Its routes.
pub fn routes() -> Routes {
    Routes::default()
        .get("/", banner)
        .post("/api/chat", chat::create)
        .post("/api/generate", generate::create)
        .get("/api/tags", models::tags)
        .get("/api/ps", models::ps)
        .post("/api/show", models::show)
        .get("/api/version", models::version)
}
