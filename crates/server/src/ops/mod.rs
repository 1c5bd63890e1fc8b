//! For operators: health, metrics.

pub mod health;
mod metrics;

use crate::routes::Routes;

/// Its routes.
pub fn routes() -> Routes {
    Routes::default()
        .get("/health", health::ready)
        .get("/health/live", health::live)
        .get("/health/ready", health::ready)
        .get("/health/startup", health::startup)
        .get("/metrics", metrics::show)
}
