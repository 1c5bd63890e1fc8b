//! Errors in OpenAI's shape.

use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::{ApiError, Kind};

/// A failure as OpenAI's clients expect it.
#[derive(Debug)]
pub struct OpenAiError(pub ApiError);

impl<E: Into<ApiError>> From<E> for OpenAiError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl OpenAiError {
    /// `{"error": {...}}`, also sent as an event in the middle of a stream.
    pub fn body(&self) -> Value {
        let ApiError { kind, message, param, code, .. } = &self.0;
        let kind = match kind {
            Kind::Invalid | Kind::NotFound | Kind::Conflict | Kind::TooLarge => "invalid_request_error",
            Kind::Unauthenticated => "authentication_error",
            Kind::Forbidden => "permission_error",
            Kind::RateLimited => "rate_limit_error",
            Kind::Overloaded => "service_unavailable_error",
            Kind::TimedOut | Kind::SlowBody => "timeout_error",
            Kind::NoRoom | Kind::Internal => "server_error",
        };
        json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
    }
}

impl IntoResponse for OpenAiError {
    fn into_response(self) -> Response {
        self.0.response(self.0.kind.status(), self.body())
    }
}
