//! What Claude Code sends beside its questions. Nothing of it is kept.

use axum::Json;
use axum::extract::rejection::BytesRejection;
use serde_json::{Value, json};

/// It asks whether someone is there.
pub async fn hello() -> Json<Value> {
    Json(json!({ "message": "hello" }))
}

/// It reports events; they are read to the end and forgotten.
pub async fn accept(_body: Result<axum::body::Bytes, BytesRejection>) -> Json<Value> {
    Json(json!({ "status": "ok" }))
}
