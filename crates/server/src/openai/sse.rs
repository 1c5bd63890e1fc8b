//! Server-sent events: one JSON object each, comments while nothing happens, `[DONE]` at the end.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use serde_json::Value;

/// How long a stream may be silent before a comment says that it lives: below the idle timeouts of usual proxies.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Streams these objects, then `[DONE]`.
pub fn respond(events: impl Stream<Item = Value> + Send + 'static) -> Response {
    let data = events.map(|value| Event::default().data(value.to_string()));
    let done = stream::once(async { Event::default().data("[DONE]") });
    let all = data.chain(done).map(Ok::<_, Infallible>);
    Sse::new(all).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
