//! For operators: health, metrics, upstreams.

pub mod health;
mod kv_disk;
mod metrics;
mod upstreams;

use axum::Json;
use serde_json::{Value, json};

use crate::guard::rights::Right;
use crate::routes::Routes;

/// Its routes.
pub fn routes() -> Routes {
    Routes::of("Operation")
        .get("/health", health::ready)
        .says("Whether a question asked now could be answered, and by which models.")
        .get("/health/live", health::live)
        .says("Whether the server lives.")
        .get("/health/ready", health::ready)
        .says("Whether a question asked now could be answered, and by which models.")
        .get("/health/startup", health::startup)
        .says("Whether everything is loaded.")
        .get("/version", version)
        .says("The server's own version.")
        .get("/metrics", metrics::show)
        .says("The engines' figures, for Prometheus.")
        .needs(Right::Metrics)
        .get("/upstreams", upstreams::list)
        .says("Other servers that compute models for this one, and how they do.")
        .needs(Right::Metrics)
}

/// Its own version; `/api/version` tells the one of Ollama's API.
async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}
