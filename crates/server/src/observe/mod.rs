//! Every request, watched from its first header to its last byte: its id, a line in the log, spans for a collector, and
//! an answer even if its handler panics.
//!
//! ```text
//! watch ─ id, Progress ─> layers, handler, engine ─ Progress ─> body ─ last byte, or the client left ─> Visit is over:
//!                                                                      log::write, otlp::Exporter::send
//! ```
//! Must never: wait for whoever reads logs or spans.

mod body;
pub mod log;
pub mod otlp;
mod progress;
mod request_id;

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::time::{Instant, SystemTime};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::FutureExt;

pub use progress::{Facts, Placement, Progress};

use crate::app::Shared;
use crate::error::{ApiError, Kind};
use crate::family::Family;
use otlp::TraceParent;

/// The header that names a request, in and out.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The same, where Anthropic's clients look for it.
const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// One HTTP request. What is known of it is written when it is dropped: after the last byte, or when the client left.
pub struct Visit {
    app: Shared,
    /// Its name in logs, traces and the answer.
    pub id: HeaderValue,
    /// How it asks.
    pub method: Method,
    /// What it asks for.
    pub path: String,
    /// Where it comes from, as far as trusted proxies tell.
    pub peer: Option<IpAddr>,
    /// The trace it is part of.
    pub parent: Option<TraceParent>,
    /// When it came, for durations.
    pub began: Instant,
    /// When it came, for people.
    pub at: SystemTime,
    /// The answer's status; `None` if the client left before.
    pub status: Option<StatusCode>,
    /// Whether the answer was sent to its end.
    pub complete: bool,
    progress: Progress,
}

impl Visit {
    fn new(app: Shared, request: &Request) -> Self {
        Self {
            id: request_id::of(request.headers().get(REQUEST_ID)),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            peer: app.guard.origin(request).address,
            parent: TraceParent::of(request.headers()),
            began: Instant::now(),
            at: SystemTime::now(),
            status: None,
            complete: false,
            progress: Progress::default(),
            app,
        }
    }

    /// Its id as text.
    pub fn id(&self) -> &str {
        self.id.to_str().unwrap_or_default()
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let facts = self.progress.snapshot();
        log::write(self, &facts);
        if let (Some(exporter), Some(_)) = (&self.app.exporter, facts.submitted) {
            exporter.send(self, &facts);
        }
    }
}

/// The layer around all others.
pub async fn watch(State(app): State<Shared>, mut request: Request, next: Next) -> Response {
    let mut visit = Visit::new(app, &request);
    let family = Family::of(&visit.path);
    request.extensions_mut().insert(visit.progress.clone());
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = answered.unwrap_or_else(|_| family.error(fallen(visit.id())));
    visit.status = Some(response.status());
    response.headers_mut().insert(REQUEST_ID, visit.id.clone());
    if family == Family::Anthropic {
        response.headers_mut().insert(ANTHROPIC_REQUEST_ID, visit.id.clone());
    }
    response.map(|body| Body::new(body::Watched::new(body, visit)))
}

/// The panic itself is on standard error.
fn fallen(id: &str) -> ApiError {
    let what =
        format!("this server has a bug and could not answer; the request was {id}, and the log says more");
    ApiError::new(Kind::Internal, what)
}
