//! `/v1/responses` and `/v1/conversations`: what is stored, gone on from, forgotten, run in the background and streamed.
//!
//! Most of it on an executor that computes nothing and can be held up; what depends on what a model writes, on the default one.

mod background;
mod bounds;
mod conversations;
#[path = "../../../../tests/default_models.rs"]
mod default_models;
mod order;
mod stored;
mod streams;
#[allow(dead_code, reason = "shared with tests of operation, which use all of it")]
#[path = "../operation/support.rs"]
mod support;
mod tools;

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request};
use ropeway_server::App;
use serde_json::{Value, json};

/// Status and body of the answer to a request.
async fn ask(app: &Arc<App>, request: Request<Body>) -> (u16, Value) {
    let (status, _, body) = support::outcome(app, request).await;
    (status, serde_json::from_str(&body).unwrap_or_else(|_| json!(body)))
}

/// The body of the answer to a request that must succeed.
async fn fine(app: &Arc<App>, request: Request<Body>) -> Value {
    let (status, body) = ask(app, request).await;
    assert_eq!(status, 200, "{body}");
    body
}

fn delete(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = support::get(path, headers);
    *request.method_mut() = Method::DELETE;
    request
}

/// A request for a response of a few tokens.
fn responses(headers: &[(&str, &str)], extra: &Value) -> Request<Body> {
    let mut body = json!({ "input": "Hello", "max_output_tokens": 4, "temperature": 0, "seed": 7 });
    body.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
    support::post("/v1/responses", headers, &body)
}

fn id(body: &Value) -> &str {
    body["id"].as_str().expect("an id")
}

/// The objects of a stream of server-sent events.
fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).expect("JSON")).collect()
}
