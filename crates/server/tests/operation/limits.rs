//! How much may be asked for at once: sizes, the queue, time.

use std::sync::Arc;
use std::time::Duration;

use ropeway_server::App;
use serde_json::json;

use crate::support::{app, chat, models, outcome, post, question, until};

#[tokio::test]
async fn what_is_too_much_is_named() {
    let Some(app) = app(|app| {
        app.limits.body = 4096;
        app.limits.sizes.prompt_tokens = Some(64);
        app.limits.sizes.n = 2;
    }) else {
        return;
    };
    let words = |count: usize| json!({"messages": [{"role": "user", "content": "word ".repeat(count)}]});
    for (extra, status, part) in [
        (json!({"n": 3}), 400, "n is at most 2 on this server"),
        (json!({"stop": vec!["x"; 65]}), 400, "at most 64 stop strings"),
        (json!({"stop": "x".repeat(1025)}), 400, "at most 1024 bytes"),
        (words(200), 400, "reads at most 64"),
        (words(2000), 413, "--max-body"),
    ] {
        let (got, _, body) = outcome(&app, chat(&[], &question(extra))).await;
        assert!(got == status && body.contains(part), "{got}: {body}");
    }
    let (status, _, body) = outcome(&app, post("/v1/messages", &[], &question(words(2000)))).await;
    assert!(status == 413 && body.contains("request_too_large"), "{body}");
}

#[tokio::test]
async fn a_text_that_can_not_fit_is_turned_down_before_it_is_tokenised() {
    let Some(app) = app(|_| ()) else { return };
    let long = "word ".repeat(400_000);
    let messages = json!({"messages": [{"role": "user", "content": long}]});
    for (path, body) in [
        ("/v1/chat/completions", question(messages.clone())),
        ("/v1/completions", json!({"prompt": long})),
        ("/v1/messages", question(messages)),
        ("/api/generate", json!({"model": "smollm2", "prompt": long, "raw": true})),
        ("/generate", json!({"prompt": long})),
    ] {
        let (status, _, body) = outcome(&app, post(path, &[], &body)).await;
        assert!(status == 400 && body.contains("which never fit"), "{path}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_turns_requests_away_with_a_time_to_come_again() {
    let Some((models, gate)) = models(2) else { return };
    let app = Arc::new(App::new(models));
    let held = gate.hold();
    let ask = |path: &'static str| {
        let app = Arc::clone(&app);
        tokio::spawn(async move { outcome(&app, post(path, &[], &question(json!({})))).await })
    };
    let first = ask("/v1/chat/completions");
    let engine = app.models.first().expect("a model").engine();
    until(|| gate.is_held_up()).await;
    let waiting = [ask("/v1/chat/completions"), ask("/v1/messages")];
    until(|| engine.load().queued == 2).await;
    for (path, status, kind) in [
        ("/v1/chat/completions", 503, "service_unavailable_error"),
        ("/v1/messages", 529, "overloaded_error"),
        ("/api/chat", 503, "2 requests are waiting already"),
    ] {
        let (got, retry, body) = ask(path).await.expect("an answer");
        let seconds: u64 = retry.expect("a time").parse().expect("seconds");
        assert!(got == status && (1..=600).contains(&seconds), "{got}, {seconds}: {body}");
        assert!(body.contains(kind), "{body}");
    }
    drop(held);
    for answer in waiting.into_iter().chain([first]) {
        assert_eq!(answer.await.expect("an answer").0, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_waits_too_long_is_told_to_come_again_and_one_that_takes_too_long_is_ended() {
    let Some((models, gate)) = models(8) else { return };
    let mut app = App::new(models);
    app.limits.queue_timeout = Some(Duration::from_millis(20));
    app.limits.request_timeout = Some(Duration::from_millis(40));
    let app = Arc::new(app);
    let held = gate.hold();
    let ask = || {
        let app = Arc::clone(&app);
        tokio::spawn(async move { outcome(&app, chat(&[], &question(json!({})))).await })
    };
    let first = ask();
    until(|| gate.is_held_up()).await;
    let second = ask();
    let engine = app.models.first().expect("a model").engine();
    until(|| engine.load().queued == 1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(held);
    let (status, retry, body) = second.await.expect("an answer");
    assert_eq!((status, retry.as_deref()), (503, Some("1")), "{body}");
    assert!(body.contains("queue_timeout"), "{body}");
    let (status, _, body) = first.await.expect("an answer");
    assert!(status == 504 && body.contains("took longer than it may"), "{status}: {body}");
}
