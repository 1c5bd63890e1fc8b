//! The Anthropic API: messages, token counts, and what Claude Code asks beside them.

mod error;
mod format;
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
    Routes::of("Anthropic")
        .post("/v1/messages", messages::create)
        .says("Answer a conversation.")
        .takes::<messages::MessagesRequest>(
            r#"{"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 32}"#,
        )
        .post("/v1/messages/count_tokens", messages::count_tokens)
        .says("How many tokens a conversation has.")
        .takes::<messages::MessagesRequest>(
            r#"{"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}]}"#,
        )
        .get("/api/hello", telemetry::hello)
        .says("Whether someone is there.")
        .post("/api/event_logging/batch", telemetry::accept)
        .says("Events of Claude Code; read and forgotten.")
        .uncounted()
        .post("/api/event_logging/v2/batch", telemetry::accept)
        .says("Events of Claude Code; read and forgotten.")
        .uncounted()
}
