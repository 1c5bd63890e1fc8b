//! Bodies on their way in: refused before their end, and within the memory of all clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::Request;
use futures_util::{StreamExt, stream};
use ropeway_server::connections::slots::ConnectionLimits;
use ropeway_server::intake::budget::Budget;
use serde_json::json;

use crate::sockets::serve;
use crate::support::{CONTEXT, app, outcome, post, question};

/// A request whose body begins like this and never ends.
fn endless(path: &str, begin: String) -> Request<Body> {
    let begun = stream::iter([Ok::<_, std::io::Error>(Bytes::from(begin))]);
    Request::post(path).body(Body::from_stream(begun.chain(stream::pending()))).expect("a request")
}

#[tokio::test(start_paused = true)]
async fn what_can_not_fit_is_refused_before_its_end() {
    let Some(app) = app(|_| ()) else { return };
    let ids = "1,".repeat(CONTEXT + 1);
    let text = "word ".repeat(400_000);
    for (path, begin, told) in [
        ("/v1/completions", format!("{{\"prompt\": [{ids}"), "at most 512 token ids"),
        ("/v1/completions", format!("{{\"prompt\": [[1], [{ids}"), "at most 512 token ids"),
        ("/v1/completions", format!("{{\"prompt\": [{}", "[],".repeat(300)), "more than the 256 texts"),
        ("/v1/completions", format!("{{\"prompt\": \"{text}"), "which never fit"),
        ("/v1/chat/completions", format!("{{\"messages\": [{{\"content\": \"{text}"), "never fit"),
        ("/v1/chat/completions", format!("{{\"tools\": [{}", "{},".repeat(200_000)), "names and values"),
        ("/v1/chat/completions", "{\"a\":".repeat(1000), "nested deeper than 128"),
        ("/v1/chat/completions", format!("{{\"user\": \"{text}"), "no part of a prompt"),
        ("/v1/chat/completions", format!("{{\"messages\": \"{text}"), "never fit"),
        ("/v1/messages", format!("{{\"messages\": [{}", "{},".repeat(200_000)), "names and values"),
        ("/v1/embeddings", format!("{{\"input\": [{}", "\"\",".repeat(3000)), "more than the 2048 texts"),
        ("/tokenize", format!("{{\"prompt\": \"{text}"), "send its parts"),
        ("/detokenize", format!("{{\"tokens\": [{ids}"), "at most 512 token ids"),
        ("/api/generate", format!("{{\"context\": [{ids}"), "at most 512 token ids"),
        ("/api/embed", format!("{{\"input\": \"{text}"), "at most 1048576 bytes"),
        ("/generate/batch", format!("{{\"prompts\": [{}", "\"\",".repeat(2000)), "more than the 512 texts"),
    ] {
        let (status, _, body) = outcome(&app, endless(path, begin)).await;
        assert!(status == 400 && body.contains(told), "{path}: {status} {body}");
    }
    assert_eq!(app.memory.used(), 0);
}

#[tokio::test]
async fn a_body_without_a_length_is_read_and_limited_all_the_same() {
    let Some(app) = app(|app| app.limits.body = 1 << 20) else { return };
    let whole = |text: String| {
        let pieces: Vec<_> =
            text.into_bytes().chunks(1000).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect();
        Request::post("/v1/chat/completions")
            .body(Body::from_stream(stream::iter(pieces)))
            .expect("a request")
    };
    let padded =
        |bytes: usize| question(json!({"unknown": vec!["x".repeat(1000); bytes / 1000]})).to_string();
    assert_eq!(outcome(&app, whole(padded(500_000))).await.0, 200);
    let (status, _, body) = outcome(&app, whole(padded(1 << 20))).await;
    assert!(status == 413 && body.contains("--max-body"), "{body}");
    assert_eq!(app.memory.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_holds_its_share_is_told_and_a_body_beyond_all_memory_is_refused() {
    let Some(app) = app(|app| app.memory = Budget::new(8 << 20)) else { return };
    let padded = |bytes: usize| question(json!({"unknown": vec!["x".repeat(1000); bytes / 1000]}));
    let (status, _, body) = outcome(&app, post("/v1/chat/completions", &[], &padded(2 << 20))).await;
    assert!(status == 413 && body.contains("--memory-in-flight"), "{body}");
    let held =
        app.memory.take(ropeway_server::guard::clients::Owner::Anonymous, 4 << 20).await.expect("a share");
    let large = || post("/v1/chat/completions", &[], &padded(1_000_000));
    let (status, retry, body) = outcome(&app, large()).await;
    assert_eq!((status, retry.as_deref()), (429, Some("2")), "{body}");
    // A small one does not wait for it.
    assert_eq!(outcome(&app, post("/tokenize", &[], &json!({"prompt": "a"}))).await.0, 200);
    drop(held);
    assert_eq!(app.memory.used(), 0);
}

fn talk(mut stream: TcpStream, bytes: &[u8]) -> String {
    let mut answer = Vec::new();
    let _ = stream.write_all(bytes);
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_client_that_is_still_sending_hears_why_it_is_refused() {
    let Some(app) = app(|_| ()) else { return };
    let (address, _stop) = serve(Arc::clone(&app), None).await;
    let body = format!("{{\"prompt\": [{}0]}}", "0,".repeat(2 << 20));
    let head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length";
    let request = format!("{head}: {}\r\n\r\n{body}", body.len());
    let exchange = move || talk(TcpStream::connect(address).expect("a connection"), request.as_bytes());
    let answer = tokio::task::spawn_blocking(exchange).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("512 token ids"), "{answer}");
}

#[tokio::test]
async fn a_connection_beyond_the_limit_waits_for_another_to_end() {
    let Some(app) = app(|app| app.connections = ConnectionLimits::new(1)) else { return };
    let (address, _stop) = serve(app, None).await;
    let first = TcpStream::connect(address).expect("a connection");
    let ask = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let second = tokio::task::spawn_blocking(move || {
        talk(TcpStream::connect(address).expect("the system takes it"), ask)
    });
    tokio::task::yield_now().await;
    assert!(!second.is_finished());
    drop(first);
    assert!(second.await.expect("an answer").starts_with("HTTP/1.1 "));
}
