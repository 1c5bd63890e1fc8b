//! Errors in Anthropic's shape.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ropeway_generation::Excess;
use serde_json::{Value, json};

use crate::error::{ApiError, Kind};

/// A failure as Anthropic's clients expect it.
#[derive(Debug)]
pub struct AnthropicError(pub ApiError);

impl<E: Into<ApiError>> From<E> for AnthropicError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl AnthropicError {
    /// `{"type": "error", ...}`, also sent as an event in the middle of a stream.
    pub fn body(&self) -> Value {
        let kind = match self.0.kind {
            Kind::Invalid | Kind::Conflict => "invalid_request_error",
            Kind::Unauthenticated => "authentication_error",
            Kind::Forbidden => "permission_error",
            Kind::NotFound => "not_found_error",
            Kind::TooLarge => "request_too_large",
            Kind::RateLimited => "rate_limit_error",
            Kind::Overloaded => "overloaded_error",
            Kind::TimedOut | Kind::SlowBody => "timeout_error",
            Kind::NoRoom | Kind::Internal => "api_error",
        };
        let message = match (&self.0.excess, &self.0.param) {
            // Clients look for these words, and shorten their conversation by the numbers.
            (Some(Excess { tokens, room }), _) => {
                format!("prompt is too long: {tokens} tokens > {room} maximum. {}", self.0.message)
            }
            (None, Some(param)) => format!("{param}: {}", self.0.message),
            (None, None) => self.0.message.clone(),
        };
        json!({ "type": "error", "error": { "type": kind, "message": message } })
    }

    fn status(&self) -> StatusCode {
        match self.0.kind {
            // Anthropic's own number for "too much to do right now".
            Kind::Overloaded => StatusCode::from_u16(529).unwrap_or(StatusCode::SERVICE_UNAVAILABLE),
            kind => kind.status(),
        }
    }
}

impl IntoResponse for AnthropicError {
    fn into_response(self) -> Response {
        self.0.response(self.status(), self.body())
    }
}
