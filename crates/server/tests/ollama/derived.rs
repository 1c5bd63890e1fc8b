//! Models made of others: made, shown, asked by every family, copied and deleted.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request};
use ropeway_engine::Load;
use ropeway_generation::{ChatAsk, ChatBackend, ChatEvents, Generator, RequestError};
use ropeway_server::library::BlobDigest;
use ropeway_server::{App, Model, ModelFacts};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::disk::{Disk, app, ask, send};
use crate::support::{self, outcome};

/// An app that serves `here:1b`, with `mario` made of it.
async fn mario() -> Option<(Arc<App>, Arc<Disk>)> {
    let (app, disk) = app(false)?;
    ask(&app, "/api/generate", json!({"model": "here:1b"})).await;
    let (status, answer) = ask(
        &app,
        "/api/create",
        json!({
            "model": "mario", "from": "here:1b", "system": "You are Mario.", "license": ["MIT"], "stream": false,
            "parameters": {"temperature": 0.5, "num_predict": 3, "stop": ["<never>"]},
            "messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "It's me!"}],
        }),
    )
    .await;
    assert_eq!((status, answer), (200, json!({"status": "success"})));
    Some((app, disk))
}

async fn tags(app: &Arc<App>) -> Vec<String> {
    let (_, tags) = send(app, Method::GET, "/api/tags", Value::Null).await;
    let names = tags["models"].as_array().expect("a list").iter();
    names.map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
}

#[tokio::test]
async fn every_family_puts_its_words_around_the_question() {
    let Some((app, _)) = mario().await else { return };
    let messages = json!([{"role": "user", "content": "Hi"}]);
    for (path, pointer) in [
        ("/api/chat", "/prompt_eval_count"),
        ("/api/generate", "/prompt_eval_count"),
        ("/v1/chat/completions", "/usage/prompt_tokens"),
        ("/v1/messages", "/usage/input_tokens"),
        ("/v1/messages/count_tokens", "/input_tokens"),
        ("/tokenize", "/count"),
    ] {
        let asked = async |model: &str| {
            let body = json!({
                "model": model, "messages": messages, "prompt": if path == "/api/generate" { json!("Hi") } else { Value::Null },
                "stream": false, "max_tokens": 3, "options": {"num_predict": 3},
            });
            let (status, answer) = ask(&app, path, body).await;
            assert_eq!(status, 200, "{path}: {answer}");
            // Anthropic's families count cached tokens apart.
            let cached = answer["usage"]["cache_read_input_tokens"].as_u64().unwrap_or(0);
            cached
                + answer
                    .pointer(pointer)
                    .and_then(Value::as_u64)
                    .unwrap_or_else(|| panic!("{path}: {answer}"))
        };
        // The mock's template writes a system prompt of its own where there is none; messages add in any case.
        let (plain, mario) = (asked("here:1b").await, asked("mario").await);
        assert!(mario > plain, "{path}: {mario} tokens, and {plain} without");
    }
}

#[tokio::test]
async fn its_options_hold_unless_the_request_says_otherwise() {
    let Some((app, _)) = mario().await else { return };
    let eval_count = async |options: Value| {
        let body = json!({"model": "mario", "stream": false, "options": options,
            "messages": [{"role": "user", "content": "Hi"}]});
        ask(&app, "/api/chat", body).await.1["eval_count"].clone()
    };
    assert_eq!(eval_count(Value::Null).await, 3);
    assert_eq!(eval_count(json!({"num_predict": 2})).await, 2);
    let body = json!({"model": "mario", "messages": [{"role": "user", "content": "Hi"}]});
    let (_, answer) = ask(&app, "/v1/chat/completions", body).await;
    assert_eq!(answer["usage"]["completion_tokens"], 3);
    assert_eq!(answer["model"], "mario");
}

#[tokio::test]
async fn it_is_shown_with_what_it_adds() {
    let Some((app, disk)) = mario().await else { return };
    assert_eq!(tags(&app).await, ["here:1b", "there:1b", "large:70b", "mario:latest"]);
    let (status, shown) = ask(&app, "/api/show", json!({"model": "mario"})).await;
    assert_eq!((status, &shown["system"], &shown["license"]), (200, &json!("You are Mario."), &json!("MIT")));
    let modelfile = shown["modelfile"].as_str().expect("a text");
    for line in
        ["FROM here:1b", "SYSTEM \"\"\"You are Mario.\"\"\"", "PARAMETER num_predict 3", "MESSAGE user Who?"]
    {
        assert!(modelfile.lines().any(|own| own == line), "{line} in {modelfile}");
    }
    assert!(
        shown["parameters"].as_str().is_some_and(|text| text.contains("temperature                    0.5"))
    );
    assert_eq!(shown["details"]["parent_model"], "here:1b");
    assert!(shown["capabilities"].as_array().is_some_and(|can| can.contains(&json!("completion"))));
    assert_eq!(disk.kept.lock().expect("no panic")[0].system, "You are Mario.");
}

#[tokio::test]
async fn it_is_copied_replaced_and_deleted_like_any_other() {
    let Some((app, disk)) = mario().await else { return };
    ask(&app, "/api/copy", json!({"source": "mario", "destination": "luigi"})).await;
    let child = json!({"model": "luigi-jr", "from": "luigi", "parameters": {"num_predict": 1}});
    assert_eq!(ask(&app, "/api/create", child).await.0, 200);
    let replaced = json!({"model": "mario", "from": "there:1b"});
    assert_eq!(ask(&app, "/api/create", replaced).await.0, 200);
    let kept: Vec<_> =
        disk.kept.lock().expect("no panic").iter().map(|one| (one.name.clone(), one.from.clone())).collect();
    let pair = |name: &str, from: &str| (name.to_owned(), from.to_owned());
    assert_eq!(kept, [pair("luigi", "here:1b"), pair("luigi-jr", "here:1b"), pair("mario", "there:1b")]);

    let delete = async |name: &str| send(&app, Method::DELETE, "/api/delete", json!({ "model": name })).await;
    let (status, answer) = delete("here:1b").await;
    assert_eq!(status, 409, "{answer}");
    assert!(answer["error"].as_str().is_some_and(|text| text.contains("luigi, luigi-jr are")), "{answer}");
    for name in ["luigi", "luigi-jr", "mario"] {
        assert_eq!(delete(name).await.0, 200, "{name}");
    }
    assert_eq!(tags(&app).await, ["here:1b", "there:1b", "large:70b"]);
    assert_eq!(delete("here:1b").await.0, 200);
}

#[tokio::test]
async fn what_cannot_be_made_is_turned_down_with_a_reason() {
    let Some((app, _)) = mario().await else { return };
    for (body, status, told) in [
        (json!({"model": "x", "from": "nowhere"}), 404, "not found"),
        (json!({"model": "", "name": "", "from": "here:1b"}), 400, "model is required"),
        (json!({"model": "x"}), 400, "from"),
        (json!({"model": "here:1b", "from": "there:1b"}), 409, "already"),
        (json!({"model": "../x", "from": "here:1b"}), 400, "letters"),
        (json!({"model": "x", "from": "here:1b", "template": "{{ .System }}"}), 400, "Go templates"),
        (json!({"model": "x", "from": "here:1b", "quantize": "q4_K_M"}), 400, "quantise"),
        (json!({"model": "x", "files": {"x.gguf": format!("sha256:{}", "0".repeat(64))}}), 404, "not found"),
    ] {
        let (got, answer) = ask(&app, "/api/create", body.clone()).await;
        assert_eq!(got, status, "{body}: {answer}");
        assert!(answer["error"].as_str().is_some_and(|text| text.contains(told)), "{body}: {answer}");
    }
}

#[tokio::test]
async fn a_file_is_taken_if_it_is_what_was_announced_and_a_model_is_made_of_it() {
    let Some((app, _)) = app(false) else { return };
    let file = b"GGUF and some weights".as_slice();
    let digest = BlobDigest::of_sum(&Sha256::digest(file)).to_string();
    let path = format!("/api/blobs/{digest}");
    let upload = async |path: &str, bytes: &'static [u8]| {
        let request = Request::post(path).body(Body::from(bytes)).expect("a request");
        outcome(&app, request).await.0
    };
    let is_here = async || {
        let request = Request::head(&path).body(Body::empty()).expect("a request");
        support::send(&app, request).await.status().as_u16()
    };
    assert_eq!(is_here().await, 404);
    assert_eq!(upload(&path, b"something else").await, 400);
    assert_eq!(is_here().await, 404, "nothing of it is left");
    assert_eq!(upload("/api/blobs/sha256:..%2f..%2fetc", file).await, 400);
    assert_eq!(upload(&path, file).await, 201);
    assert_eq!((is_here().await, upload(&path, file).await), (200, 200));
    let body = json!({"model": "sent", "files": {"x.gguf": digest}, "stream": false});
    assert_eq!(ask(&app, "/api/create", body).await.0, 200);
    assert_eq!(tags(&app).await.last().map(String::as_str), Some("sent:latest"));
    let (_, listed) = send(&app, Method::GET, "/api/tags", Value::Null).await;
    let details = listed["models"].as_array().and_then(|rows| Some(&rows.last()?["details"]));
    assert_eq!(details.map(|details| &details["family"]), Some(&json!("llama")), "{listed}");
}

/// A server that answers as text; nobody asks it here.
struct Far;

impl ChatBackend for Far {
    fn ask(&self, _: ChatAsk) -> Result<ChatEvents, RequestError> {
        Ok(Box::pin(futures_util::stream::empty()))
    }

    fn context(&self) -> usize {
        64
    }

    fn load(&self) -> Load {
        Load::default()
    }

    fn stop(&self) {}
}

#[tokio::test]
async fn a_model_of_another_server_can_be_given_words_but_no_template() {
    let Some((app, disk)) = app(false) else { return };
    let far = Model::of_generator("far:70b".into(), Generator::of_chat(Arc::new(Far)), ModelFacts::default());
    app.models.add(Arc::new(far));
    let luigi = |template: &str| json!({"model": "luigi", "from": "far:70b", "system": "You are Luigi.", "template": template, "stream": false});
    let (status, answer) = ask(&app, "/api/create", luigi("{{ messages }}")).await;
    assert_eq!(status, 400, "{answer}");
    assert!(answer.to_string().contains("tokenizer is not here"), "{answer}");
    let (status, answer) = ask(&app, "/api/create", luigi("")).await;
    assert_eq!((status, answer), (200, json!({"status": "success"})));
    assert_eq!(disk.kept.lock().expect("no panic")[0].from, "far:70b");
    assert!(tags(&app).await.contains(&"luigi:latest".to_owned()));
    let (_, shown) = ask(&app, "/api/show", json!({"model": "luigi"})).await;
    assert_eq!(shown["system"], "You are Luigi.");
    let (status, answer) = ask(&app, "/api/create", json!({"model": "x", "from": "nowhere:1b"})).await;
    assert_eq!(status, 404, "{answer}");
}
