//! What all handlers share, and the routes.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::middleware::from_fn_with_state;
use ropeway_kvdisk::Disk;
use ropeway_openai::foreign_ids::IdsOf;
use ropeway_pool::pools::Pools;

use crate::agents::Agents;
use crate::connections::slots::ConnectionLimits;
use crate::embedding::EmbeddingModels;
use crate::error::{ApiError, Kind};
use crate::guard::limits::Limits;
use crate::guard::{self, Guard};
use crate::intake::budget::Budget;
use crate::library::Shelf;
use crate::model::Models;
use crate::observe::{self, otlp::Exporter};
use crate::openai::store::Store;
use crate::ops::{self, health::Life};
use crate::routes::Routes;
use crate::{agents, anthropic, docs, generate, ollama, openai};

/// What all handlers share.
pub struct App {
    /// The models served.
    pub models: Models,
    /// The models that embed and rank.
    pub embeddings: EmbeddingModels,
    /// Whose token ids clients send to be embedded.
    pub embedding_ids: IdsOf,
    /// Models on disk, if clients may fetch, load and delete them.
    pub shelf: Option<Shelf>,
    /// Starting, ready or draining.
    pub life: Life,
    /// How much one request may ask for.
    pub limits: Limits,
    /// The memory of requests that are being read.
    pub memory: Budget,
    /// How many connections there may be.
    pub connections: ConnectionLimits,
    /// Who is let in.
    pub guard: Guard,
    /// Where traces go.
    pub exporter: Option<Exporter>,
    /// Agents and sessions of all clients.
    pub agents: Agents,
    /// Responses and conversations that clients come back to.
    pub responses: Store,
    /// The disk area below the models' memory.
    pub disk: Option<Disk>,
    /// Other servers that compute models for this one; set once the server runs, for they need its models.
    pub pools: OnceLock<Arc<Pools>>,
}

impl App {
    /// An app that serves these models to everyone who asks.
    pub fn new(models: Models) -> Self {
        Self {
            models,
            embeddings: EmbeddingModels::default(),
            embedding_ids: IdsOf::default(),
            shelf: None,
            life: Life::default(),
            limits: Limits::default(),
            memory: Budget::default(),
            connections: ConnectionLimits::default(),
            guard: Guard::default(),
            exporter: None,
            agents: Agents::default(),
            responses: Store::default(),
            disk: None,
            pools: OnceLock::new(),
        }
    }

    /// Agents are kept in this disk area's folder, and operators see how the area does.
    #[must_use]
    pub fn with_disk(mut self, disk: Disk) -> Self {
        self.agents = Agents::on_disk(&disk);
        self.disk = Some(disk);
        self
    }

    /// Models on disk, for clients that ask to change what is served.
    pub fn shelf(&self) -> Result<&Shelf, ApiError> {
        self.shelf.as_ref().ok_or_else(|| {
            let what = "this server's models are fixed: clients can't fetch, load, unload or delete any";
            ApiError::new(Kind::Forbidden, what)
        })
    }
}

/// Shared by all handlers.
pub type Shared = Arc<App>;

/// All routes, and the layers around them.
pub fn router(app: Shared) -> Router {
    layered(routes().finish(), app)
}

/// The routes of every API.
pub fn routes() -> Routes {
    openai::routes()
        .and(anthropic::routes())
        .and(ollama::routes())
        .and(generate::routes())
        .and(agents::routes())
        .and(ops::routes())
        .and(docs::routes())
}

/// The layers around any routes; the last one is the first to see a request.
fn layered(routes: Router<Shared>, app: Shared) -> Router {
    let mut router = routes.layer(from_fn_with_state(Shared::clone(&app), guard::admit));
    if let Some(cors) = app.guard.cors() {
        router = router.layer(cors);
    }
    router.layer(from_fn_with_state(Shared::clone(&app), observe::watch)).with_state(app)
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::{Request, StatusCode};
    use tower::ServiceExt;

    use super::*;

    async fn falls() -> &'static str {
        panic!("a bug")
    }

    #[tokio::test]
    async fn a_handler_that_panics_answers_500_in_its_familys_shape() {
        let paths = [
            ("/v1/x", "\"type\":\"server_error\""),
            ("/v1/messages/x", "\"type\":\"api_error\""),
            ("/api/x", "{\"error\":\""),
        ];
        let routes = || paths.iter().fold(Routes::default(), |routes, (path, _)| routes.get(path, falls));
        let app = Arc::new(App::new(Models::default()));
        for (path, shape) in paths {
            let router = layered(routes().finish(), Arc::clone(&app));
            let request = Request::get(path).header("x-request-id", "abc-1").body(Body::empty()).unwrap();
            let response = router.oneshot(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(response.headers()["x-request-id"], "abc-1");
            let body = to_bytes(response.into_body(), 4096).await.unwrap();
            let body = String::from_utf8_lossy(&body);
            assert!(body.contains(shape) && body.contains("abc-1"), "{body}");
        }
    }
}
