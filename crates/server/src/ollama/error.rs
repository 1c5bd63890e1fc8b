//! Errors in Ollama's shape.

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
        self.0.response(self.0.kind.status(), self.body())
    }
}
