//! Keys, names, origins, and what each client may use.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request};
use ropeway_engine::Class;
use ropeway_server::App;
use ropeway_server::guard::clients::Allowance;
use ropeway_server::guard::host::Hosts;
use serde_json::{Value, json};

use crate::support::{app, chat, get, outcome, post, question, send, text, until};

const ALICE: (&str, &str) = ("authorization", "Bearer sk-alice-1");

fn with_keys(keys: &str) -> Option<Arc<App>> {
    app(|app| app.guard.keys = keys.parse().expect("keys"))
}

#[tokio::test]
async fn a_server_with_keys_asks_for_one_in_each_familys_shape() {
    let Some(app) = with_keys("sk-alice-1 name=alice") else { return };
    for (path, shape) in [
        (
            "/v1/chat/completions",
            "\"type\":\"authentication_error\",\"param\":null,\"code\":\"invalid_api_key\"",
        ),
        ("/v1/messages", "{\"type\":\"error\",\"error\":{\"type\":\"authentication_error\""),
        ("/api/chat", "{\"error\":\"this server asks for a key"),
    ] {
        for headers in [&[][..], &[("x-api-key", "sk-alice-2")], &[("authorization", "Bearer")]] {
            let response = send(&app, post(path, headers, &question(json!({})))).await;
            assert_eq!(response.headers()["www-authenticate"], "Bearer");
            assert_eq!(response.status(), 401);
            let body = text(response).await;
            assert!(body.contains(shape) && !body.contains("sk-alice"), "{body}");
        }
        let right = send(&app, post(path, &[("x-api-key", "sk-alice-1")], &question(json!({})))).await;
        assert_eq!(right.status(), 200);
    }
    assert_eq!(send(&app, get("/health/live", &[])).await.status(), 200);
    assert_eq!(send(&app, get("/metrics", &[])).await.status(), 401);
    assert_eq!(
        send(&app, get("/metrics", &[ALICE])).await.status(),
        403,
        "figures are for those with the right"
    );
    assert_eq!(send(&app, get("/nope", &[])).await.status(), 401, "what is there is told to holders only");
}

#[tokio::test]
async fn a_key_caps_the_priority_that_may_be_asked_for() {
    let Some(app) = with_keys("sk-alice-1 max-priority=bulk\nsk-bob-123") else { return };
    let finished = |class: Class| {
        let metrics = app.models.first().expect("a model").engine().board().expect("an engine").metrics();
        metrics.classes[class as usize].finished.iter().sum::<u64>()
    };
    let answered = || Class::ALL.into_iter().map(finished).sum::<u64>();
    let urgent = ("x-priority", "interactive");
    let whole = |key| send(&app, chat(&[key, urgent], &question(json!({}))));
    text(whole(ALICE).await).await;
    // Figures are published after the step whose tokens were sent.
    until(|| answered() == 1).await;
    let by_alice = finished(Class::Bulk);
    text(whole(("x-api-key", "sk-bob-123")).await).await;
    until(|| answered() == 2).await;
    assert_eq!((by_alice, finished(Class::Bulk)), (1, 1));
}

#[tokio::test]
async fn other_names_and_other_pages_are_turned_down() {
    let hosts = Hosts::new(&["127.0.0.1:8000".parse().unwrap()], &[], &["https://app.example".into()]);
    let Some(app) = app(|app| app.guard.hosts = hosts) else { return };
    let (status, _, body) = outcome(&app, get("/api/tags", &[("host", "evil.example")])).await;
    assert!(status == 403 && body.contains("--allowed-host evil.example"), "{body}");
    let headers = [("host", "127.0.0.1:8000"), ("origin", "https://evil.example")];
    let (status, _, body) = outcome(&app, chat(&headers, &question(json!({})))).await;
    assert!(status == 403 && body.contains("--cors-origin"), "{body}");

    let headers = [("host", "localhost:8000"), ("origin", "https://app.example")];
    let answer = send(&app, chat(&headers, &question(json!({})))).await;
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["access-control-allow-origin"]),
        (200, &"https://app.example".parse().unwrap())
    );
    let preflight = Request::builder().method(Method::OPTIONS).uri("/v1/chat/completions");
    let preflight =
        preflight.header("origin", "https://app.example").header("access-control-request-method", "POST");
    let preflight = send(&app, preflight.body(Body::empty()).unwrap()).await;
    assert!(preflight.headers()["access-control-allow-methods"].to_str().unwrap().contains("POST"));
}

#[tokio::test]
async fn no_page_may_read_anything_unless_told_so() {
    let Some(app) = app(|_| ()) else { return };
    let answer =
        send(&app, get("/v1/models", &[("host", "localhost"), ("origin", "http://localhost")])).await;
    assert!(answer.status() == 200 && !answer.headers().contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn a_client_may_run_so_many_requests_and_one_that_ends_makes_room() {
    let one = Allowance { concurrency: NonZeroU32::new(1), ..Allowance::default() };
    let Some(app) = app(|app| app.guard.allowance = one) else { return };
    let stream = send(&app, chat(&[], &question(json!({"stream": true, "max_tokens": 400})))).await;
    assert_eq!(stream.status(), 200);
    for (path, kind) in [
        ("/v1/chat/completions", "rate_limit_error"),
        ("/v1/messages", "rate_limit_error"),
        ("/api/chat", "wait for one to end"),
    ] {
        let (status, retry, body) = outcome(&app, post(path, &[], &question(json!({})))).await;
        assert_eq!((status, retry.as_deref()), (429, Some("1")), "{body}");
        assert!(body.contains(kind), "{body}");
    }
    drop(stream);
    assert_eq!(outcome(&app, chat(&[], &question(json!({})))).await.0, 200);
}

#[tokio::test]
async fn a_client_that_used_its_tokens_is_told_when_there_are_more() {
    let Some(app) = with_keys("sk-alice-1 tokens-per-minute=20\nsk-bob-123") else { return };
    let ask = || outcome(&app, chat(&[ALICE], &question(json!({"max_tokens": 100}))));
    assert_eq!(ask().await.0, 200, "what a request will use is known afterwards");
    let (status, retry, body) = ask().await;
    assert_eq!(status, 429, "{body}");
    let seconds: u64 = retry.expect("a time").parse().expect("seconds");
    assert!(seconds > 60 && body.contains("rate_limit_exceeded"), "{seconds}: {body}");
    assert_eq!(outcome(&app, chat(&[("x-api-key", "sk-bob-123")], &question(json!({})))).await.0, 200);
    let error: Value = serde_json::from_str(&body).expect("JSON");
    assert!(error["error"]["message"].as_str().expect("text").contains("20 tokens per minute"));
}
