//! What all handlers share, and the routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;

use crate::model::Models;
use crate::ops::{self, health::Life};
use crate::{anthropic, generate, ollama, openai};

/// Largest body read: a prompt of some million tokens, or a conversation with a few files in it.
pub const DEFAULT_BODY_LIMIT: usize = 32 << 20;

/// What all handlers share.
pub struct App {
    /// The models served.
    pub models: Models,
    /// Largest body read.
    pub body_limit: usize,
    /// Starting, ready or draining.
    pub life: Life,
}

impl App {
    /// An app that serves these models.
    pub fn new(models: Models) -> Self {
        Self { models, body_limit: DEFAULT_BODY_LIMIT, life: Life::default() }
    }
}

/// Shared by all handlers.
pub type Shared = Arc<App>;

/// All routes.
pub fn router(app: Shared) -> Router {
    let limit = DefaultBodyLimit::max(app.body_limit);
    Router::new()
        .merge(openai::routes())
        .merge(anthropic::routes())
        .merge(ollama::routes())
        .merge(generate::routes())
        .merge(ops::routes())
        .layer(limit)
        .with_state(app)
}
