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
    Routes::of("Ollama")
        .get("/", banner)
        .says("Whether the server runs.")
        .post("/api/chat", chat::create)
        .says("Answer a conversation; streams unless told not to.")
        .takes::<chat::ChatRequest>(
            r#"{"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "stream": false}"#,
        )
        .post("/api/generate", generate::create)
        .says("Answer a prompt; streams unless told not to.")
        .takes::<generate::GenerateRequest>(
            r#"{"model": "smollm2", "prompt": "Name three colours.", "stream": false}"#,
        )
        .get("/api/tags", models::tags)
        .says("The models there are.")
        .get("/api/ps", models::ps)
        .says("The models that are loaded.")
        .post("/api/show", models::show)
        .says("What is known of a model.")
        .takes::<models::ShowRequest>(r#"{"model": "smollm2"}"#)
        .get("/api/version", models::version)
        .says("The version of Ollama's API that is spoken.")
}
