//! Tools, and what else a request may ask for, on the default model.

use std::sync::{Arc, OnceLock};

use ropeway_cpu::{CpuExecutor, CpuOptions};
use ropeway_engine::{Settings, spawn};
use ropeway_server::{Alias, App, Model, ModelFacts, Models};
use ropeway_text::{ChatTemplate, Tokenizer};
use ropeway_weights::Checkpoint;
use serde_json::{Value, json};

use crate::support::post;
use crate::{ask, default_models, fine, responses};

/// An app with the default model; `None` (and a reason on the screen) without it.
pub fn served() -> Option<Arc<App>> {
    static APP: OnceLock<Option<Arc<App>>> = OnceLock::new();
    APP.get_or_init(load).clone()
}

fn load() -> Option<Arc<App>> {
    let checkpoint = Checkpoint::open(&default_models::smollm2()?).expect("the default model");
    let options = CpuOptions { context: Some(1024), kv_tokens: Some(4096), ..CpuOptions::default() };
    let executor = CpuExecutor::load(&checkpoint, &options, &mut |_, _| {}).expect("it loads");
    let (handle, _) = spawn(Box::new(executor), &Settings::default());
    let tokenizer = Tokenizer::from_checkpoint(&checkpoint).expect("a tokenizer");
    let template = ChatTemplate::from_checkpoint(&checkpoint).expect("readable").expect("a template");
    let models = Models::new(vec!["claude-*=smollm2:135m".parse::<Alias>().expect("an alias")]);
    let model = Model::new("smollm2:135m".into(), tokenizer, template, ModelFacts::default(), handle);
    models.add(Arc::new(model));
    Some(Arc::new(App::new(models)))
}

/// A tool of every kind, one that can't be run here among them.
pub fn functions() -> Value {
    let city =
        json!({"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]});
    let spawn = json!({"type": "function", "name": "spawn", "parameters": city});
    json!([
        {"type": "function", "name": "warmth", "description": "How warm it is.", "parameters": city},
        {"type": "namespace", "name": "agents", "description": "Agents.", "tools": [spawn]},
        {"type": "custom", "name": "patch", "description": "Applies a patch.",
         "format": {"type": "grammar", "syntax": "regex", "definition": "[+-][a-z]{1,8}"}},
        {"type": "local_shell"},
        {"type": "web_search"},
    ])
}

async fn called(choice: Value) -> Option<Value> {
    let app = served()?;
    let body = json!({"tools": functions(), "tool_choice": choice, "max_output_tokens": 64});
    Some(fine(&app, responses(&[], &body)).await["output"][0].clone())
}

#[tokio::test]
async fn a_forced_tool_is_called_in_its_own_form() {
    let Some(call) = called(json!({"type": "function", "namespace": "agents", "name": "spawn"})).await else {
        return;
    };
    assert_eq!(
        (&call["type"], &call["namespace"], &call["name"]),
        (&json!("function_call"), &json!("agents"), &json!("spawn"))
    );
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().expect("text")).expect("JSON");
    assert!(["Oslo", "Rome"].contains(&arguments["city"].as_str().expect("a city")));

    let call = called(json!({"type": "custom", "name": "patch"})).await.expect("a model");
    let input = call["input"].as_str().expect("text");
    assert_eq!(call["type"], "custom_tool_call");
    assert!(input.starts_with(['+', '-']) && (2..=9).contains(&input.len()), "{input}");

    let allowed = json!([{"type": "function", "name": "warmth"}, {"type": "web_search"}]);
    let call = called(json!({"type": "allowed_tools", "mode": "required", "tools": allowed}))
        .await
        .expect("a model");
    assert_eq!((&call["name"], call.get("namespace")), (&json!("warmth"), None));
}

#[tokio::test]
async fn tools_of_other_servers_are_left_out_and_refused_when_forced_in_every_api() {
    let Some(app) = served() else { return };
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let chat = |extra: Value| with(json!({"messages": messages, "max_tokens": 2}), &extra);
    let search = json!([{"type": "web_search_20250305", "name": "web_search"}]);
    for (path, body) in [
        (
            "/v1/responses",
            json!({"input": "Hi", "max_output_tokens": 2, "tools": [{"type": "mcp", "server_label": "x"}]}),
        ),
        ("/v1/chat/completions", chat(json!({"tools": [{"type": "web_search"}]}))),
        ("/v1/messages", chat(json!({"model": "claude-1", "tools": search}))),
        ("/api/chat", chat(json!({"model": "smollm2", "stream": false, "tools": [{"type": "web_search"}]}))),
    ] {
        let (status, answer) = ask(&app, post(path, &[], &body)).await;
        assert_eq!(status, 200, "{path}: {answer}");
    }
    for (path, body) in [
        ("/v1/responses", json!({"input": "Hi", "tools": [{"type": "mcp"}], "tool_choice": "required"})),
        ("/v1/responses", json!({"input": "Hi", "tools": [{"type": "mcp"}], "tool_choice": {"type": "mcp"}})),
        ("/v1/chat/completions", chat(json!({"tools": [{"type": "web_search"}], "tool_choice": "required"}))),
        ("/v1/messages", chat(json!({"model": "claude-1", "tools": search, "tool_choice": {"type": "any"}}))),
        (
            "/v1/messages",
            chat(
                json!({"model": "claude-1", "tools": search, "tool_choice": {"type": "tool", "name": "web_search"}}),
            ),
        ),
    ] {
        let (status, answer) = ask(&app, post(path, &[], &body)).await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains("runs no tools"), "{path}: {answer}");
    }
}

fn with(mut body: Value, extra: &Value) -> Value {
    body.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
    body
}

#[tokio::test]
async fn a_conversation_that_is_too_long_is_cut_or_refused_as_asked() {
    let Some(app) = served() else { return };
    let long = "word ".repeat(300);
    let input: Vec<Value> =
        (0..6).map(|n| json!({"role": "user", "content": format!("{n} {long}")})).collect();
    let refused = json!({"input": input, "truncation": "disabled"});
    let (status, error) = ask(&app, responses(&[], &refused)).await;
    assert_eq!((status, &error["error"]["code"]), (400, &json!("context_length_exceeded")));
    assert_eq!(error["error"]["param"], "input");
    let cut = fine(&app, responses(&[], &json!({"input": input, "truncation": "auto"}))).await;
    assert_eq!(cut["truncation"], "auto");
    let tokens = cut["usage"]["input_tokens"].as_u64().expect("a count");
    assert!(tokens > 300 && tokens < 1024, "{tokens}");
    let (status, _) =
        ask(&app, responses(&[], &json!({"input": long.repeat(4), "truncation": "auto"}))).await;
    assert_eq!(status, 400, "one message can't be cut");
}
