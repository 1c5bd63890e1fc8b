//! Errors in Ollama's shape.

use axum::Json;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::ApiError;

/// A failure as Ollama's clients expect it.
#[derive(Debug)]
pub struct OllamaError(pub ApiError);

impl<E: Into<ApiError>> From<E> for OllamaError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl OllamaError {
    /// `{"error": "..."}`, also sent as a line in the middle of a stream.
    pub fn body(&self) -> Value {
        json!({ "error": self.0.message })
    }
}

impl IntoResponse for OllamaError {
    fn into_response(self) -> Response {
        let mut response = (self.0.kind.status(), Json(self.body())).into_response();
        if let Some(time) = self.0.retry_after {
            response.headers_mut().insert(RETRY_AFTER, time.as_secs().max(1).into());
        }
        response
    }
}
