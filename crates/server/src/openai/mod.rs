//! The OpenAI API: chat completions, completions, responses, embeddings, ranking, tokens, models.
//!
//! The bodies of chat completions, completions and embeddings are those of the `openai` crate, which batch files share.
//! Unknown fields are ignored; a known one that can't be honoured is an error, never silence.

mod chat;
mod completions;
mod embeddings;
mod error;
mod models;
mod rerank;
mod responses;
pub mod sse;
mod tokenize;

pub use error::OpenAiError;

use ropeway_openai::{ChatCompletionRequest, CompletionRequest, EmbeddingsRequest};

use crate::routes::Routes;

/// Its routes.
pub fn routes() -> Routes {
    Routes::of("OpenAI")
        .get("/v1/models", models::list)
        .says("The models served; in Anthropic's shape for clients that send anthropic-version.")
        .get("/v1/models/{*id}", models::one)
        .says("One of the models.")
        .post("/v1/chat/completions", chat::create)
        .says("Answer a conversation.")
        .takes::<ChatCompletionRequest>(
            r#"{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 32}"#,
        )
        .post("/v1/completions", completions::create)
        .says("Continue a text.")
        .takes::<CompletionRequest>(r#"{"prompt": "Once upon a time", "max_tokens": 32}"#)
        .post("/v1/embeddings", embeddings::create)
        .says("The vectors of texts.")
        .takes::<EmbeddingsRequest>(r#"{"model": "all-minilm", "input": "The sky is blue."}"#)
        .post("/v1/rerank", rerank::create)
        .says("Documents in the order of their relevance to a query; needs a cross-encoder.")
        .takes::<rerank::RerankRequest>(
            r#"{"query": "What is blue?", "documents": ["The sky.", "The grass."]}"#,
        )
        .post("/v1/responses", responses::create)
        .says("Answer a conversation, as output items; nothing is stored.")
        .takes::<responses::ResponsesRequest>(r#"{"input": "Name three colours.", "max_output_tokens": 32}"#)
        .post("/tokenize", tokenize::tokenize)
        .says("The tokens of a text or a conversation.")
        .takes::<tokenize::TokenizeRequest>(r#"{"prompt": "Once upon a time"}"#)
        .post("/detokenize", tokenize::detokenize)
        .says("The text of tokens.")
        .takes::<tokenize::DetokenizeRequest>(r#"{"tokens": [28120, 3714]}"#)
}
