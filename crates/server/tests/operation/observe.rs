//! What is written down about a request.

use std::io::Write;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use serde_json::{Value, json};
use tracing_subscriber::fmt::MakeWriter;

use crate::support::{app, chat, get, question, send, text};

/// Lines of a log, kept for a look.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("lines").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Lines {
    type Writer = Self;

    fn make_writer(&'w self) -> Self {
        self.clone()
    }
}

impl Lines {
    fn all(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().expect("lines").clone()).expect("text");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

#[tokio::test]
async fn every_request_has_a_name_and_a_line_in_the_log() {
    let Some(app) = app(|app| app.guard.keys = "sk-alice-1 name=alice".parse().expect("keys")) else {
        return;
    };
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_writer(lines.clone()).finish();
    // For all threads: a callsite that another test comes to first would else be switched off for good.
    tracing::subscriber::set_global_default(subscriber).expect("the only log");
    let key = ("x-api-key", "sk-alice-1");

    let answer = send(&app, chat(&[key, ("x-request-id", "log-1")], &question(json!({})))).await;
    assert_eq!(answer.headers()["x-request-id"], "log-1");
    text(answer).await;
    let refused = send(&app, chat(&[("x-request-id", "no good")], &question(json!({})))).await;
    let ours = refused.headers()["x-request-id"].to_str().expect("text").to_owned();
    assert!(ours.starts_with("req_"), "{ours}");
    text(refused).await;
    text(send(&app, get("/health", &[])).await).await;
    let stream = send(
        &app,
        chat(&[key, ("x-request-id", "log-2")], &question(json!({"stream": true, "max_tokens": 300}))),
    )
    .await;
    let mut stream = stream.into_body().into_data_stream();
    stream.next().await;
    drop(stream);

    let lines = lines.all();
    let line = |id: &str| lines.iter().find(|line| line["request_id"] == id).expect("a line");
    let (whole, refused, cut) = (line("log-1"), line(&ours), line("log-2"));
    assert!(!lines.iter().any(|line| line["path"] == "/health"), "probes are not worth a line");
    let expected = json!({
        "target": "access", "level": "INFO", "method": "POST", "path": "/v1/chat/completions", "status": 200,
        "model": "smollm2:135m", "priority": "default", "output_tokens": 4, "cached_tokens": 0, "client": "alice",
        "request_id": "log-1",
    });
    for (name, value) in expected.as_object().expect("fields") {
        assert_eq!(&whole[name], value, "{name}");
    }
    for time in ["ms", "queue_ms", "ttft_ms", "prompt_tokens"] {
        assert!(whole[time].is_number(), "{time}: {whole}");
    }
    assert!(whole["cut_off"].is_null() && cut["cut_off"] == true, "{cut}");
    assert_eq!((&refused["status"], &refused["request_id"]), (&json!(401), &json!(ours)));
    assert!(refused["model"].is_null() && !lines.iter().any(|line| line.to_string().contains("sk-alice")));
}
