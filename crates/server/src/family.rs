//! Which API family a path belongs to, and so the shape of its errors.

use axum::response::{IntoResponse, Response};

use crate::anthropic::AnthropicError;
use crate::error::ApiError;
use crate::ollama::OllamaError;
use crate::openai::OpenAiError;

/// Families whose errors look different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// And everything that belongs to nobody else.
    OpenAi,
    /// `/v1/messages`.
    Anthropic,
    /// `/api`.
    Ollama,
}

impl Family {
    /// The family of a path.
    pub fn of(path: &str) -> Self {
        let under = |start: &str| {
            path.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        match path {
            _ if under("/v1/messages") => Family::Anthropic,
            _ if under("/api") => Family::Ollama,
            _ => Family::OpenAi,
        }
    }

    /// A failure in its shape.
    pub fn error(self, error: ApiError) -> Response {
        match self {
            Family::OpenAi => OpenAiError(error).into_response(),
            Family::Anthropic => AnthropicError(error).into_response(),
            Family::Ollama => OllamaError(error).into_response(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_decides() {
        assert_eq!(Family::of("/v1/messages/count_tokens"), Family::Anthropic);
        assert_eq!(Family::of("/api/chat"), Family::Ollama);
        for path in ["/v1/messagesx", "/apiary", "/v1/chat/completions", "/generate", "/"] {
            assert_eq!(Family::of(path), Family::OpenAi);
        }
    }
}
