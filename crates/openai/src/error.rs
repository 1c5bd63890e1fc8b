//! Errors in OpenAI's shape.

use ropeway_generation::{ErrorKind, RequestError};
use serde_json::{Value, json};

/// A failed request's `{"error": {...}}`, also sent as an event in the middle of a stream.
pub fn body(error: &RequestError) -> Value {
    let kind = match error.kind {
        ErrorKind::InvalidRequest | ErrorKind::ContextLengthExceeded => "invalid_request_error",
        ErrorKind::Overloaded | ErrorKind::QueueTimeout => "service_unavailable_error",
        ErrorKind::Timeout => "timeout_error",
        ErrorKind::Internal => "server_error",
    };
    let RequestError { field, message, .. } = error;
    json!({ "error": { "message": message, "type": kind, "param": field, "code": error.kind.code() } })
}
