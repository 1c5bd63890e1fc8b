//! What Claude Code sends beside its questions. Nothing of it is kept.

use axum::Json;
use axum::extract::Request;
use serde_json::{Value, json};

use crate::intake::forget;

/// It asks whether someone is there.
pub async fn hello() -> Json<Value> {
    Json(json!({ "message": "hello" }))
}

/// It reports events; they are read to the end, piece by piece, and forgotten.
pub async fn accept(request: Request) -> Json<Value> {
    forget(request.into_body()).await;
    Json(json!({ "status": "ok" }))
}
