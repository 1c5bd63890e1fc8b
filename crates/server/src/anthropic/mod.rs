//! The Anthropic API: messages, token counts, and what Claude Code asks beside them.

mod error;
mod messages;
mod models;
mod render;
mod stream;
mod telemetry;
mod translate;

use axum::Router;
use axum::routing::{get, post};

pub use error::AnthropicError;
pub use models::list as list_models;

use crate::app::Shared;

/// Its routes. `/v1/models` is shared with OpenAI's API and told apart by the `anthropic-version` header.
pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/v1/messages", post(messages::create))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .route("/api/hello", get(telemetry::hello))
        .route("/api/event_logging/batch", post(telemetry::accept))
        .route("/api/event_logging/v2/batch", post(telemetry::accept))
}
