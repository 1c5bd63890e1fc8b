//! The Ollama API: chat, generate, questions about the models, and what changes them.
//!
//! Streams by default, as lines of JSON. A chat loads a model only where the operator allows it; an empty one does anyway
//! ([`presence`]). It is meant for Ollama's own command line and its Go, Python and JavaScript clients: bodies are read as
//! tolerantly as Ollama reads them ([`tolerance`], [`options`]), and nothing that those clients rely on is missing.

mod blobs;
mod chat;
mod create;
mod embed;
mod error;
mod format;
mod generate;
mod logprobs;
mod manage;
mod models;
pub(crate) mod options;
mod presence;
mod show;
mod stats;
mod think;
mod tolerance;

pub use error::OllamaError;
pub use models::{OLLAMA_VERSION, banner};

use crate::guard::rights::Right;
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
        .post("/api/embed", embed::create)
        .says("The vectors of texts.")
        .takes::<embed::EmbedRequest>(r#"{"model": "all-minilm", "input": ["The sky is blue."]}"#)
        .post("/api/embeddings", embed::legacy)
        .says("The vector of a text, as it was asked for in the past.")
        .takes::<embed::LegacyRequest>(r#"{"model": "all-minilm", "prompt": "The sky is blue."}"#)
        .get("/api/tags", models::tags)
        .says("The models there are.")
        .get("/api/ps", models::ps)
        .says("The models that are loaded.")
        .post("/api/show", show::show)
        .says("What is known of a model, loaded or not.")
        .takes::<show::ShowRequest>(r#"{"model": "smollm2"}"#)
        .post("/api/pull", manage::pull)
        .says("Fetch a model to the disk; streams its progress unless told not to.")
        .needs(Right::Pull)
        .takes::<manage::NameRequest>(r#"{"model": "smollm2"}"#)
        .post("/api/push", manage::push)
        .says("Turned down: nothing is published from here.")
        .takes::<manage::NameRequest>(r#"{"model": "smollm2"}"#)
        .post("/api/create", create::create)
        .says("Make a model of another one: a name, a system prompt, default options, perhaps a template.")
        .needs(Right::Admin)
        .takes::<create::CreateRequest>(
            r#"{"model": "mario", "from": "smollm2", "system": "You are Mario.", "stream": false}"#,
        )
        .get("/api/blobs/{digest}", blobs::find)
        .says("Whether a file to make a model of is here.")
        .needs(Right::Admin)
        .post("/api/blobs/{digest}", blobs::take)
        .says("Send a file to make a model of, by its sha256.")
        .needs(Right::Admin)
        .post("/api/copy", manage::copy)
        .says("Give a model one more name.")
        .needs(Right::Admin)
        .takes::<manage::CopyRequest>(r#"{"source": "smollm2", "destination": "gpt-4o"}"#)
        .delete("/api/delete", manage::delete)
        .says("Delete a model from the disk, and from memory if it is there.")
        .needs(Right::Admin)
        .takes::<manage::NameRequest>(r#"{"model": "gpt-4o"}"#)
        .get("/api/version", models::version)
        .says("The version of Ollama's API that is spoken.")
        .get("/api/status", models::status)
        .says("Whether Ollama's cloud may be used, which it may not.")
}
