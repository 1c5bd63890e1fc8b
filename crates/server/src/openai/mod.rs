//! The OpenAI API: chat completions, completions, responses, embeddings, ranking, tokens, models.
//!
//! The bodies of chat completions, completions and embeddings are those of the `openai` crate, which batch files share.
//! Unknown fields are ignored; a known one that can't be honoured is an error, never silence.

mod chat;
mod completions;
mod conversations;
mod embeddings;
mod error;
mod models;
mod rerank;
mod responses;
pub mod sse;
pub mod store;
mod tokenize;

pub use error::OpenAiError;

use ropeway_openai::{ChatCompletionRequest, CompletionRequest, EmbeddingsRequest};

use crate::routes::Routes;
use conversations::ConversationRequest;

/// The routes of what is stored.
fn stored() -> Routes {
    Routes::of("OpenAI")
        .get("/v1/responses/{id}", responses::manage::one)
        .says("A stored response; its status tells how far one in the background is.")
        .query("stream")
        .delete("/v1/responses/{id}", responses::manage::delete)
        .says("Forget a response; one in the background is stopped.")
        .get("/v1/responses/{id}/input_items", responses::manage::input_items)
        .says("What a response was given, those items of turns before included.")
        .query("limit")
        .query("order")
        .query("after")
        .post("/v1/responses/{id}/cancel", responses::manage::cancel)
        .says("Stop a response in the background.")
        .uncounted()
        .post("/v1/conversations", conversations::create)
        .says("Make a conversation, which responses can go on with.")
        .takes::<ConversationRequest>(
            r#"{"items": [{"role": "user", "content": "Hi"}], "metadata": {"topic": "hello"}}"#,
        )
        .uncounted()
        .get("/v1/conversations/{id}", conversations::one)
        .says("A conversation, without its items.")
        .post("/v1/conversations/{id}", conversations::update)
        .says("Replace a conversation's metadata.")
        .takes::<ConversationRequest>(r#"{"metadata": {"topic": "hello"}}"#)
        .uncounted()
        .delete("/v1/conversations/{id}", conversations::delete)
        .says("Forget a conversation.")
        .get("/v1/conversations/{id}/items", conversations::items)
        .says("What was said in a conversation.")
        .query("limit")
        .query("order")
        .query("after")
        .post("/v1/conversations/{id}/items", conversations::add_items)
        .says("Add items to a conversation.")
        .takes::<ConversationRequest>(r#"{"items": [{"role": "user", "content": "Hi"}]}"#)
        .uncounted()
        .get("/v1/conversations/{id}/items/{item_id}", conversations::one_item)
        .says("One item of a conversation.")
        .delete("/v1/conversations/{id}/items/{item_id}", conversations::delete_item)
        .says("Take an item out of a conversation.")
}

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
        .post("/rerank", rerank::create)
        .says("The same where other servers have it.")
        .takes::<rerank::RerankRequest>(
            r#"{"query": "What is blue?", "documents": ["The sky.", "The grass."]}"#,
        )
        .post("/v2/rerank", rerank::create)
        .says("The same where Cohere's clients look for it.")
        .takes::<rerank::RerankRequest>(
            r#"{"query": "What is blue?", "documents": ["The sky.", "The grass."]}"#,
        )
        .post("/v1/responses", responses::create)
        .says("Answer a conversation, as output items; stored unless store is false.")
        .takes::<responses::ResponsesRequest>(r#"{"input": "Name three colours.", "max_output_tokens": 32}"#)
        .and(stored())
        .post("/tokenize", tokenize::tokenize)
        .says("The tokens of a text or a conversation.")
        .takes::<tokenize::TokenizeRequest>(r#"{"prompt": "Once upon a time"}"#)
        .post("/detokenize", tokenize::detokenize)
        .says("The text of tokens.")
        .takes::<tokenize::DetokenizeRequest>(r#"{"tokens": [28120, 3714]}"#)
}
