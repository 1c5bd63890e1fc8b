//! Paths and methods that are not there.

use crate::support::{app, get, post, send, text};
use serde_json::json;

#[tokio::test]
async fn an_unknown_path_is_answered_in_its_familys_shape_with_the_paths_there_are() {
    let Some(app) = app(|_| ()) else { return };
    for (path, shape, known) in [
        ("/v1/chat", "{\"error\":{\"message\"", "POST /v1/chat/completions"),
        ("/v1/messages/nope", "{\"type\":\"error\"", "POST /v1/messages/count_tokens"),
        ("/api/nope", "{\"error\":\"", "GET /api/tags"),
    ] {
        let response = send(&app, get(path, &[])).await;
        assert_eq!(response.status(), 404);
        let body = text(response).await;
        assert!(body.starts_with(shape) && body.contains(known), "{body}");
    }
}

#[tokio::test]
async fn a_wrong_method_is_answered_with_the_right_one() {
    let Some(app) = app(|_| ()) else { return };
    for (request, allowed, shape) in [
        (get("/v1/chat/completions", &[]), "POST", "{\"error\":{\"message\""),
        (get("/v1/messages", &[]), "POST", "{\"type\":\"error\""),
        (post("/api/tags", &[], &json!({})), "GET", "{\"error\":\""),
        (post("/v1/models/some/name", &[], &json!({})), "GET", "{\"error\":{\"message\""),
    ] {
        let response = send(&app, request).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["allow"]),
            (405, &allowed.parse().unwrap())
        );
        let body = text(response).await;
        assert!(body.starts_with(shape) && body.contains(allowed), "{body}");
    }
}
