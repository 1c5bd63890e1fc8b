//! Plain generation: a prompt or many in, texts out, without a conversation.

mod batch;
mod one;
mod request;
mod stream;

use axum::Router;
use axum::routing::post;

use crate::app::Shared;

/// Its routes. Errors have OpenAI's shape.
pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/generate", post(one::create))
        .route("/generate/stream", post(stream::create))
        .route("/generate/batch", post(batch::create))
}
