//! The Anthropic API: messages, token counts, and what Claude Code asks beside them.

mod error;
mod messages;
mod models;
mod render;
mod stream;
mod telemetry;
mod translate;

pub use error::AnthropicError;
pub use models::list as list_models;

use crate::routes::Routes;

/// Its routes. `/v1/models` is shared with OpenAI's API and told apart by the `anthropic-version` header.
pub fn routes() -> Routes {
    Routes::default()
        .post("/v1/messages", messages::create)
        .post("/v1/messages/count_tokens", messages::count_tokens)
        .get("/api/hello", telemetry::hello)
        .post("/api/event_logging/batch", telemetry::accept)
        .post("/api/event_logging/v2/batch", telemetry::accept)
}
