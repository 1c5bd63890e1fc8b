//! Routes that know about themselves, so that a wrong path or method is answered with the right ones.
//!
//! A family lists its routes once; [`Routes::finish`] makes the router of all of them and the answers to everything else.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::handler::Handler;
use axum::http::header::ALLOW;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, post};

use crate::app::Shared;
use crate::error::{ApiError, Kind};
use crate::family::Family;

/// A route: its method and its path.
type Known = (&'static str, &'static str);

/// Routes in the making.
#[derive(Default)]
pub struct Routes {
    router: Router<Shared>,
    known: Vec<Known>,
}

impl Routes {
    /// Answers `GET` (and `HEAD`).
    pub fn get<H: Handler<T, Shared>, T: 'static>(self, path: &'static str, handler: H) -> Self {
        self.add("GET", path, get(handler))
    }

    /// Answers `POST`.
    pub fn post<H: Handler<T, Shared>, T: 'static>(self, path: &'static str, handler: H) -> Self {
        self.add("POST", path, post(handler))
    }

    /// Answers `DELETE`.
    pub fn delete<H: Handler<T, Shared>, T: 'static>(self, path: &'static str, handler: H) -> Self {
        self.add("DELETE", path, delete(handler))
    }

    fn add(mut self, method: &'static str, path: &'static str, route: MethodRouter<Shared>) -> Self {
        self.known.push((method, path));
        Self { router: self.router.route(path, route), known: self.known }
    }

    /// These and those.
    pub fn and(mut self, other: Routes) -> Self {
        self.known.extend(other.known);
        Self { router: self.router.merge(other.router), known: self.known }
    }

    /// The router, which answers what it does not know with what it does.
    pub fn finish(self) -> Router<Shared> {
        let known: Arc<[Known]> = self.known.into();
        let others = Arc::clone(&known);
        self.router
            .fallback(move |request: Request| async move { unknown_path(&known, &request) })
            .method_not_allowed_fallback(
                move |request: Request| async move { wrong_method(&others, &request) },
            )
    }
}

fn unknown_path(known: &[Known], request: &Request) -> Response {
    let path = request.uri().path();
    let family = Family::of(path);
    let relatives: Vec<_> = known
        .iter()
        .filter(|(_, other)| Family::of(other) == family)
        .map(|(method, path)| format!("{method} {path}"))
        .collect();
    let message = format!("there is no {} {path:?}; there are {}", request.method(), relatives.join(", "));
    family.error(ApiError::new(Kind::NotFound, message).coded("unknown_url"))
}

fn wrong_method(known: &[Known], request: &Request) -> Response {
    let path = request.uri().path();
    let route = request.extensions().get::<MatchedPath>().map_or(path, MatchedPath::as_str);
    let methods: Vec<_> =
        known.iter().filter(|(_, known)| *known == route).map(|(method, _)| *method).collect();
    let methods = methods.join(", ");
    let message = format!("{path} is asked with {methods}, not with {}", request.method());
    let mut response = Family::of(path).error(ApiError::invalid(message).coded("method_not_allowed"));
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    if let Ok(methods) = HeaderValue::from_str(&methods) {
        response.headers_mut().insert(ALLOW, methods);
    }
    response
}
