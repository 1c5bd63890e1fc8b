//! The Ollama API: chat, generate, questions about the models, and what changes them.
//!
//! Streams by default, as lines of JSON. A chat never loads a model; an empty one does ([`presence`]).

mod chat;
mod embed;
mod error;
mod generate;
mod manage;
mod models;
mod options;
mod presence;
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
        .post("/api/embed", embed::create)
        .post("/api/embeddings", embed::legacy)
        .get("/api/tags", models::tags)
        .get("/api/ps", models::ps)
        .post("/api/show", models::show)
        .post("/api/pull", manage::pull)
        .post("/api/copy", manage::copy)
        .delete("/api/delete", manage::delete)
        .get("/api/version", models::version)
}
