//! Routes that know about themselves, so that a wrong path or method is answered with the right ones, and
//! [`docs`](crate::docs) can tell about all of them.
//!
//! A family lists its routes once; [`Routes::finish`] makes the router of all of them and the answers to everything else.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::handler::Handler;
use axum::http::header::ALLOW;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, post};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use crate::app::Shared;
use crate::error::{ApiError, Kind};
use crate::family::Family;
use crate::guard;
use crate::guard::rights::Right;

/// What is known of a route.
#[derive(Clone)]
pub struct Known {
    /// The API it belongs to.
    pub api: &'static str,
    /// How it is asked.
    pub method: &'static str,
    /// Its path; `{name}` and `{*name}` stand for anything.
    pub path: &'static str,
    /// What it is for, in a sentence.
    pub summary: &'static str,
    /// What may stand in its query.
    pub query: Vec<&'static str>,
    /// What is sent to it.
    pub takes: Option<Takes>,
    /// The right that it needs.
    pub needs: Option<Right>,
    /// Whether it counts as a request of its client's.
    pub is_counted: bool,
}

/// The JSON body a route takes.
#[derive(Clone)]
pub struct Takes {
    /// Its shape.
    pub schema: RefOr<Schema>,
    /// The named shapes within it.
    pub parts: Vec<(String, RefOr<Schema>)>,
    /// A body that works.
    pub example: &'static str,
}

/// Routes in the making.
#[derive(Default)]
pub struct Routes {
    api: &'static str,
    known: Vec<Known>,
    /// What answers each of them.
    handlers: Vec<MethodRouter<Shared>>,
}

impl Routes {
    /// The routes of this API.
    pub fn of(api: &'static str) -> Self {
        Self { api, ..Self::default() }
    }

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

    fn add(mut self, method: &'static str, path: &'static str, handler: MethodRouter<Shared>) -> Self {
        let is_counted = method == "POST";
        let (api, summary) = (self.api, "");
        self.known.push(Known {
            api,
            method,
            path,
            summary,
            query: Vec::new(),
            takes: None,
            needs: None,
            is_counted,
        });
        self.handlers.push(handler);
        self
    }

    /// Only clients with this right may ask the last route.
    pub fn needs(mut self, right: Right) -> Self {
        if let Some(last) = self.known.last_mut() {
            last.needs = Some(right);
        }
        self
    }

    /// The last route does not count as a request of its client's, though it is a `POST`: it costs next to nothing.
    pub fn uncounted(mut self) -> Self {
        if let Some(last) = self.known.last_mut() {
            last.is_counted = false;
        }
        self
    }

    /// Says what the last route is for.
    pub fn says(mut self, summary: &'static str) -> Self {
        if let Some(last) = self.known.last_mut() {
            last.summary = summary;
        }
        self
    }

    /// Names something that may stand in the last route's query.
    pub fn query(mut self, name: &'static str) -> Self {
        if let Some(last) = self.known.last_mut() {
            last.query.push(name);
        }
        self
    }

    /// Says what the last route takes, with a body that works.
    pub fn takes<T: ToSchema>(mut self, example: &'static str) -> Self {
        if let Some(last) = self.known.last_mut() {
            let mut parts = Vec::new();
            T::schemas(&mut parts);
            last.takes = Some(Takes { schema: T::schema(), parts, example });
        }
        self
    }

    /// What is known of each.
    pub fn known(&self) -> &[Known] {
        &self.known
    }

    /// These and those.
    pub fn and(mut self, other: Routes) -> Self {
        self.known.extend(other.known);
        self.handlers.extend(other.handlers);
        self
    }

    /// The router, which answers what it does not know with what it does.
    pub fn finish(self) -> Router<Shared> {
        let mut router = Router::new();
        for (known, handler) in self.known.iter().zip(self.handlers) {
            router = router.route(known.path, guarded(known, handler));
        }
        let known: Arc<[Known]> = self.known.into();
        let others = Arc::clone(&known);
        router
            .fallback(move |request: Request| async move { unknown_path(&known, &request) })
            .method_not_allowed_fallback(
                move |request: Request| async move { wrong_method(&others, &request) },
            )
    }
}

/// A handler behind the right that it needs and the count of its client's requests.
fn guarded(known: &Known, mut handler: MethodRouter<Shared>) -> MethodRouter<Shared> {
    if known.is_counted {
        handler = handler.route_layer(from_fn(guard::counted));
    }
    if let Some(right) = known.needs {
        handler = handler.route_layer(from_fn(move |request: Request, next: Next| {
            guard::with_right(right, request, next)
        }));
    }
    handler
}

fn unknown_path(known: &[Known], request: &Request) -> Response {
    let path = request.uri().path();
    let family = Family::of(path);
    let relatives: Vec<_> = known
        .iter()
        .filter(|other| Family::of(other.path) == family)
        .map(|other| format!("{} {}", other.method, other.path))
        .collect();
    let message = format!("there is no {} {path:?}; there are {}", request.method(), relatives.join(", "));
    family.error(ApiError::new(Kind::NotFound, message).coded("unknown_url"))
}

fn wrong_method(known: &[Known], request: &Request) -> Response {
    let path = request.uri().path();
    let route = request.extensions().get::<MatchedPath>().map_or(path, MatchedPath::as_str);
    let methods: Vec<_> =
        known.iter().filter(|known| known.path == route).map(|known| known.method).collect();
    let methods = methods.join(", ");
    let message = format!("{path} is asked with {methods}, not with {}", request.method());
    let mut response = Family::of(path).error(ApiError::invalid(message).coded("method_not_allowed"));
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    if let Ok(methods) = HeaderValue::from_str(&methods) {
        response.headers_mut().insert(ALLOW, methods);
    }
    response
}
