//! What the server tells about itself: `/openapi.json`, and `/docs`, a page that shows it.
//!
//! Both are made from the list of [`routes`](crate::routes), so no route is left out. The page is one file without
//! anything from elsewhere: it works where nothing else can be reached.

mod openapi;

use std::sync::LazyLock;

use axum::http::HeaderName;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{Html, IntoResponse};

use crate::app;
use crate::routes::Routes;

/// Its routes.
pub fn routes() -> Routes {
    Routes::of("Operation")
        .get("/openapi.json", document)
        .says("This description, for programs.")
        .get("/docs", page)
        .says("This description, for people.")
}

async fn document() -> impl IntoResponse {
    static DOCUMENT: LazyLock<String> = LazyLock::new(|| openapi::document(app::routes().known()));
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.as_str())
}

async fn page() -> impl IntoResponse {
    const OURS_ONLY: [(HeaderName, &str); 1] = [(
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'",
    )];
    (OURS_ONLY, Html(include_str!("page.html")))
}
