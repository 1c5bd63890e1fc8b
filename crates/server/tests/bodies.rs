//! The bodies that clients get, to the letter, but for what differs every time: `snapshots/` holds them.
//!
//! After a change that is meant: `INSTA_UPDATE=always cargo test -p ropeway-server --test bodies`, and read the difference.

mod served;

use serde_json::{Value, json};
use served::{app, send};

/// Fields that differ every time: names, clocks, what the cache happens to hold, and how much it paid to draft.
const CHANGING: [&str; 23] = [
    "id",
    "item_id",
    "created",
    "created_at",
    "total_duration",
    "load_duration",
    "prompt_eval_duration",
    "eval_duration",
    "time_seconds",
    "tokens_per_second",
    "time_to_first_token",
    "time_elapsed",
    "total_time_seconds",
    "avg_time_per_prompt",
    "queue_seconds",
    "cached_tokens",
    "input_tokens",
    "cache_read_input_tokens",
    "steps",
    "drafted",
    "accepted",
    "acceptance_rate",
    "mean_depth",
];

/// Fields that tell one piece of a stream from the next; how much text a piece has is a matter of chance.
const PROGRESS: [&str; 7] = ["delta", "content", "text", "response", "token", "token_id", "sequence_number"];

/// The value with these fields' texts and numbers blotted out.
fn without(fields: &[&str], mut value: Value) -> Value {
    match &mut value {
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without(fields, item.take())),
        Value::Object(entries) => {
            for (name, entry) in entries {
                let plain = entry.is_string() || entry.is_number();
                *entry = if plain && fields.contains(&name.as_str()) {
                    format!("[{name}]").into()
                } else {
                    without(fields, entry.take())
                };
            }
        }
        _ => {}
    }
    value
}

/// The frames of a stream; pieces that look alike are told once, pings never.
fn frames(body: &str) -> String {
    let changing = [&CHANGING[..], &PROGRESS, &["index"]].concat();
    let line = |line: &str| {
        let (head, json) = line.find('{').map_or((line, ""), |start| line.split_at(start));
        match serde_json::from_str(json) {
            Ok(value) => format!("{head}{}\n", without(&changing, value)),
            Err(_) => format!("{line}\n"),
        }
    };
    let is_event = body.contains("data: ");
    let pieces = body.split_inclusive(if is_event { "\n\n" } else { "\n" });
    let mut frames: Vec<String> = pieces.map(|piece| piece.lines().map(line).collect()).collect();
    frames.retain(|frame| !frame.contains("\"ping\""));
    frames.dedup();
    frames.concat()
}

/// Asks for a whole answer and for a stream, and compares both with what was there before.
async fn check(name: &str, path: &str, mut body: Value) {
    let Some(app) = app() else { return };
    body["stream"] = false.into();
    let (status, whole) = send(&app, path, &body).await;
    let whole = serde_json::from_str(&whole).map(|whole| without(&CHANGING, whole)).expect("JSON");
    insta::assert_snapshot!(format!("{name}_whole"), format!("{status}\n{whole:#}"));
    body["stream"] = true.into();
    let (status, stream) = send(&app, path, &body).await;
    insta::assert_snapshot!(format!("{name}_stream"), format!("{status}\n{}", frames(&stream)));
}

fn question() -> Value {
    json!([{"role": "user", "content": "Name three colours."}])
}

#[tokio::test]
async fn openai_chats_look_as_before() {
    let body = json!({
        "messages": question(), "max_tokens": 6, "temperature": 0,
        "logprobs": false, "stream_options": {"include_usage": true},
    });
    check("openai_chat", "/v1/chat/completions", body).await;
}

#[tokio::test]
async fn openai_completions_look_as_before() {
    check(
        "openai_completion",
        "/v1/completions",
        json!({"prompt": "Once", "max_tokens": 6, "temperature": 0}),
    )
    .await;
}

#[tokio::test]
async fn openai_responses_look_as_before() {
    let body = json!({"input": question(), "max_output_tokens": 6, "temperature": 0});
    check("openai_response", "/v1/responses", body).await;
}

#[tokio::test]
async fn anthropic_messages_look_as_before() {
    let body = json!({"model": "claude-x", "messages": question(), "max_tokens": 6, "temperature": 0});
    check("anthropic_message", "/v1/messages", body).await;
}

#[tokio::test]
async fn ollama_answers_look_as_before() {
    let options = json!({"num_predict": 6, "temperature": 0});
    let chat = json!({"model": "smollm2", "messages": question(), "options": options});
    check("ollama_chat", "/api/chat", chat).await;
    let generate = json!({"model": "smollm2", "prompt": "Name three colours.", "options": options});
    check("ollama_generate", "/api/generate", generate).await;
}

#[tokio::test]
async fn plain_texts_look_as_before() {
    let settings = json!({"max_tokens": 6, "temperature": 0, "seed": 1});
    let with = |name: &str, value: Value| {
        let mut body = settings.clone();
        body[name] = value;
        body
    };
    check("generate", "/generate", with("prompt", json!("Once"))).await;
    check("generate_batch", "/generate/batch", with("prompts", json!(["Once"]))).await;
}

#[tokio::test]
async fn errors_look_as_before() {
    let Some(app) = app() else { return };
    for (name, path) in
        [("openai", "/v1/chat/completions"), ("anthropic", "/v1/messages"), ("ollama", "/api/chat")]
    {
        let body = json!({"model": "gpt-9", "messages": question(), "max_tokens": 1});
        let (status, body) = send(&app, path, &body).await;
        insta::assert_snapshot!(format!("{name}_error"), format!("{status}\n{body}"));
    }
}
