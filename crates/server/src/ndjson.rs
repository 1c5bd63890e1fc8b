//! Streams of JSON lines.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use serde_json::Value;

/// Streams these objects, one a line.
pub fn respond(lines: impl Stream<Item = Value> + Send + 'static) -> Response {
    let bytes = lines.map(|line| Ok::<_, Infallible>(format!("{line}\n")));
    ([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(bytes)).into_response()
}
