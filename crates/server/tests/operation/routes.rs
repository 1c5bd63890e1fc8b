//! Paths and methods that are not there.

use crate::support::{app, get, post, send, text};
use ropeway_server::guard::keys::KeyRing;
use serde_json::{Value, json};

/// Routes that need an embedding model or a library, which the app of these tests has not: understood, and turned down.
const UNEQUIPPED: [&str; 10] = [
    "/v1/embeddings",
    "/v1/rerank",
    "/rerank",
    "/v2/rerank",
    "/api/embed",
    "/api/embeddings",
    "/api/pull",
    "/api/push",
    "/api/create",
    "/api/copy",
];

#[tokio::test]
async fn every_example_of_the_document_works() {
    let Some(app) = app(|_| ()) else { return };
    let document = text(send(&app, get("/openapi.json", &[])).await).await;
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    let made = text(send(&app, post("/v1/conversations", &[], &json!({}))).await).await;
    let made: Value = serde_json::from_str(&made).expect("JSON");
    let conversation = made["id"].as_str().expect("an id");
    let mut tried = 0;
    for (path, item) in paths {
        let example = item.pointer("/post/requestBody/content/application~1json/example");
        if let Some(example) = example {
            // The agent that the example before has made, or the conversation.
            let is_conversation = path.starts_with("/v1/conversations");
            let path = path.replace("{id}", if is_conversation { conversation } else { "coder" });
            let response = send(&app, post(&path, &[], example)).await;
            let expected: &[u16] =
                if UNEQUIPPED.contains(&path.as_str()) { &[403, 404] } else { &[200, 201] };
            assert!(expected.contains(&response.status().as_u16()), "{path}: {}", text(response).await);
            tried += 1;
        }
    }
    assert!(tried > 10 && paths.contains_key("/v1/models/{id}"), "{tried} examples");
}

#[tokio::test]
async fn the_page_about_the_routes_needs_no_key_and_nothing_from_elsewhere() {
    let keys = "sk-0123456789".parse::<KeyRing>().expect("a key");
    let Some(app) = app(|app| app.guard.keys = keys) else { return };
    for path in ["/docs", "/openapi.json"] {
        let response = send(&app, get(path, &[])).await;
        assert_eq!(response.status(), 200);
        let body = text(response).await;
        assert!(!body.contains("src=") && !body.contains("https://"), "{path}");
    }
}

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
