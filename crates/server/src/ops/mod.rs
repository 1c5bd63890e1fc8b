//! For operators: health, metrics.

pub mod health;
mod kv_disk;
mod metrics;

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
        .get("/metrics", metrics::show)
        .says("The engines' figures, for Prometheus.")
        .needs(Right::Metrics)
}
