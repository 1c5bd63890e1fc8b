//! For operators: health, metrics.

pub mod health;
mod metrics;

use axum::Router;
use axum::routing::get;

use crate::app::Shared;

/// Its routes.
pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/health", get(health::ready))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/health/startup", get(health::startup))
        .route("/metrics", get(metrics::show))
}
