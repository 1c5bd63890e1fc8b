//! What goes wrong with servers and connections, and what must not.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use ropeway_executor::SamplingParams;
use ropeway_pool::error::UpstreamError;
use ropeway_pool::upstream::TokenEvent;
use serde_json::{Value, json};

use crate::scripted::{
    Reply, Server, Then, answered, ask, events, events_then, json, read, tokens, upstream,
};
use crate::vllm::{chunk, vllm};

fn whole_answer() -> Reply {
    events(&[chunk(&[10], json!({})), chunk(&[2], json!({ "finish_reason": "stop", "stop_reason": 2 }))])
}

/// The error that a completion ends with when it is answered so.
async fn error_of(reply: Reply) -> UpstreamError {
    let server = vllm("0.18.0", move |_| reply.clone()).await;
    let params = SamplingParams::greedy();
    match server.upstream(json!({})).generate(&ask(&params)).await {
        Err(error) => error,
        Ok(stream) => read(stream).await.1.expect("an error"),
    }
}

#[tokio::test]
async fn every_status_is_the_error_that_it_means() {
    let said = |message: &str| json!({ "error": { "message": message, "code": 1 } });
    let upstream = || "gpu".to_owned();
    for (reply, error) in [
        (Reply::Json(401, said("no")), UpstreamError::Unauthorized { upstream: upstream(), status: 401 }),
        (Reply::Json(403, said("no")), UpstreamError::Unauthorized { upstream: upstream(), status: 403 }),
        (
            Reply::Text(429, "retry-after: 7\r\n", String::new()),
            UpstreamError::Busy {
                upstream: upstream(),
                status: 429,
                retry_after: Some(Duration::from_secs(7)),
            },
        ),
        (
            Reply::Json(503, said("loading")),
            UpstreamError::Busy { upstream: upstream(), status: 503, retry_after: None },
        ),
        (
            Reply::Json(400, said("too long")),
            UpstreamError::Refused { upstream: upstream(), status: 400, message: "too long".into() },
        ),
        (
            Reply::Json(500, said("engine dead")),
            UpstreamError::Failed { upstream: upstream(), why: "status 500: engine dead".into() },
        ),
        (
            Reply::Text(502, "content-type: text/html\r\n", "<html>Bad Gateway</html>".into()),
            UpstreamError::Failed {
                upstream: upstream(),
                why: "status 502: `<html>Bad Gateway</html>`".into(),
            },
        ),
        (
            Reply::Text(404, "content-type: text/html\r\n", "<html>".into()),
            UpstreamError::Foreign {
                upstream: upstream(),
                expected: "vllm".into(),
                why: "status 404: `<html>`".into(),
            },
        ),
        (
            Reply::Text(200, "content-type: text/html\r\n", "<html>".into()),
            UpstreamError::Foreign {
                upstream: upstream(),
                expected: "vllm".into(),
                why: "it sent a web page".into(),
            },
        ),
    ] {
        assert_eq!(error_of(reply).await, error);
    }
}

#[tokio::test]
async fn a_stream_that_does_not_come_to_its_end_is_broken_off() {
    for then in [Then::Cut, Then::Reset, Then::End] {
        let error = error_of(events_then(&[chunk(&[10], json!({}))], then)).await;
        assert!(matches!(error, UpstreamError::BrokenOff { .. }), "{then:?}: {error}");
    }
}

#[tokio::test]
async fn a_stream_of_something_else_is_foreign() {
    let error = error_of(Reply::Events(vec!["{\"choices\": 5}".into()], Then::End)).await;
    assert!(matches!(error, UpstreamError::Foreign { .. }), "{error}");
    let textual = json!({ "choices": [{ "index": 0, "text": "x", "finish_reason": null }] });
    let error = error_of(events(&[textual])).await;
    assert!(matches!(&error, UpstreamError::Foreign { why, .. } if why.contains("token ids")), "{error}");
}

#[tokio::test]
async fn a_line_without_an_end_does_not_fill_the_memory() {
    let error = error_of(Reply::Events(vec!["x".repeat(20 << 20)], Then::Stall)).await;
    assert!(
        matches!(&error, UpstreamError::BrokenOff { why, .. } if why.contains("longer than 16 MiB")),
        "{error}"
    );
}

#[tokio::test]
async fn a_connection_that_is_refused_says_so() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let gone = upstream(&format!("http://127.0.0.1:{port}"), json!({}));
    assert!(matches!(gone.healthy().await, Err(UpstreamError::Unreachable { .. })));
    let nowhere = upstream("http://no-such-host.invalid:1", json!({}));
    assert!(matches!(nowhere.describe().await, Err(UpstreamError::Unreachable { .. })));
}

#[tokio::test]
async fn a_server_that_says_nothing_is_silent_before_and_between_tokens() {
    let server = vllm("0.18.0", |_| events_then(&[chunk(&[10], json!({}))], Then::Stall)).await;
    let upstream = server.upstream(json!({ "first-token-timeout": 50, "token-timeout": 20 }));
    let params = SamplingParams::greedy();
    let mut stream = upstream.generate(&ask(&params)).await.expect("an answer");
    assert_eq!(stream.next().await, Some(Ok(tokens(&[10]))));
    // From here on there is nothing to wait for but the clock.
    tokio::time::pause();
    let silent = |waited_for, seconds| {
        Some(Err::<TokenEvent, _>(UpstreamError::Silent {
            upstream: "gpu".into(),
            waited_for,
            after: Duration::from_secs(seconds),
        }))
    };
    assert_eq!(stream.next().await, silent("the next token", 20));
    assert_eq!(stream.next().await, None);
    tokio::time::resume();
    let mute = vllm("0.18.0", |_| events_then(&[], Then::Stall)).await;
    let upstream = mute.upstream(json!({ "first-token-timeout": 50, "token-timeout": 20 }));
    let mut stream = upstream.generate(&ask(&params)).await.expect("an answer");
    tokio::time::pause();
    assert_eq!(stream.next().await, silent("the first token", 50));
}

#[tokio::test]
async fn a_stream_that_is_dropped_closes_its_connection() {
    let mut server = vllm("0.18.0", |_| events_then(&[chunk(&[10], json!({}))], Then::Stall)).await;
    let params = SamplingParams::greedy();
    let mut stream = server.upstream(json!({})).generate(&ask(&params)).await.expect("an answer");
    assert_eq!(stream.next().await, Some(Ok(tokens(&[10]))));
    drop(stream);
    server.wait_left(1).await;
}

#[tokio::test]
async fn a_request_that_is_dropped_before_its_answer_closes_its_connection() {
    let mut server = Server::start(|_| Reply::Silence).await;
    let upstream = server.upstream(json!({ "kind": "openai" }));
    let waiting = tokio::spawn(async move { upstream.post("/v1/embeddings", &json!({})).await });
    server.wait_arrived(1).await;
    waiting.abort();
    server.wait_left(1).await;
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_whole_answer() {
    let server = vllm("0.18.0", |_| whole_answer()).await;
    let upstream = server.upstream(json!({}));
    let params = SamplingParams::greedy();
    for _ in 0..5 {
        answered(&upstream, &ask(&params)).await;
        // What is left of an answer is read beside; a probe waits for no one.
        while upstream.healthy().await.is_err() {}
    }
    let used = server.connections.load(Ordering::SeqCst);
    assert!(used <= 2, "{used} connections for ten requests, one after another");
}

#[tokio::test]
async fn a_kept_connection_that_the_server_closed_is_no_failure() {
    let count = AtomicUsize::new(0);
    let server = Server::start(move |seen| match seen.path.as_str() {
        "/first" => json(json!({})),
        // The kept connection is closed instead of an answer; a new one is served.
        _ if count.fetch_add(1, Ordering::SeqCst) == 0 => Reply::Nothing,
        _ => json(json!({ "is": "well" })),
    })
    .await;
    let upstream = server.upstream(json!({ "kind": "openai" }));
    upstream.post("/first", &json!({})).await.expect("an answer");
    assert_eq!(upstream.post("/second", &json!({})).await, Ok(json!({ "is": "well" })));
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_new_connection_that_is_closed_without_an_answer_is_a_failure() {
    let server = Server::start(|_| Reply::Nothing).await;
    let upstream = server.upstream(json!({ "kind": "openai" }));
    let error = upstream.post("/v1/embeddings", &json!({})).await.expect_err("no answer");
    assert!(matches!(error, UpstreamError::BrokenOff { .. }), "{error}");
    assert_eq!(server.asked("/v1/embeddings").len(), 1);
}

#[tokio::test]
async fn the_key_is_sent_and_in_no_error() {
    let key = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(key.path(), "sk-hidden\n").expect("written");
    let server = Server::start(|_| Reply::Json(401, json!({ "error": "Unauthorized" }))).await;
    let upstream = server.upstream(json!({ "key-file": key.path() }));
    let error = upstream.describe().await.expect_err("refused");
    assert_eq!(error, UpstreamError::Unauthorized { upstream: "gpu".into(), status: 401 });
    assert!(server.asked("/v1/models")[0].head.contains("authorization: bearer sk-hidden"));
    assert!(!format!("{error} {error:?} {upstream:?}").contains("hidden"));
}

#[tokio::test]
async fn values_are_streamed_up_to_the_end_and_errors_among_them_are_errors() {
    let delta =
        |reason: Value| json!({ "choices": [{ "delta": { "content": "x" }, "finish_reason": reason }] });
    let read = async |reply: Reply| {
        let server = Server::start(move |_| reply.clone()).await;
        let upstream = server.upstream(json!({ "kind": "openai" }));
        let stream = upstream
            .post_stream("/v1/chat/completions", &json!({ "stream": true }))
            .await
            .expect("an answer");
        stream.collect::<Vec<_>>().await
    };
    let two = [delta(Value::Null), delta("stop".into())];
    assert_eq!(read(events(&two)).await, two.clone().map(Ok));
    // Some servers have no word for the end.
    assert_eq!(read(events_then(&two, Then::End)).await, two.clone().map(Ok));
    let cut = read(events_then(&two[..1], Then::End)).await;
    assert!(matches!(&cut[..], [Ok(_), Err(UpstreamError::BrokenOff { .. })]), "{cut:?}");
    let failed = read(events(&[json!({ "error": { "message": "died" } })])).await;
    assert_eq!(failed, [Err(UpstreamError::Failed { upstream: "gpu".into(), why: "died".into() })]);
}
