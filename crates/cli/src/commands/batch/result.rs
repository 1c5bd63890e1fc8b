//! A line of the output, in the form of `OpenAI`'s batch results.

use ropeway_openai::error::body;
use serde_json::{Value, json};

use super::error::{LineError, status};

/// The line for a request that was answered.
pub fn line(id: &str, body: &Value) -> Value {
    let response = json!({ "status_code": 200, "request_id": id, "body": body });
    json!({ "custom_id": id, "response": response, "error": null })
}

/// The line for a request that got no answer.
pub fn error_line(id: &str, error: LineError) -> Value {
    let error = error.into_request_error();
    let status = status(error.kind);
    let code = if status == 400 { "invalid_request" } else { "server_error" };
    let response = json!({ "status_code": status, "request_id": id, "body": body(&error) });
    json!({ "custom_id": id, "response": response, "error": { "code": code, "message": error.message } })
}
