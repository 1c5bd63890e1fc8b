//! Models that another server answers as text: every API family works on them, and what needs their tokenizer is a clear 400.

use std::io::Write;
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::http::Request;
use futures_util::stream;
use ropeway_engine::{Load, Usage};
use ropeway_generation::{
    ChatAbilities, ChatAsk, ChatBackend, ChatEvents, Finish, GenerationEvent, Generator, Job, Prompt,
    RequestError, StopReason,
};
use ropeway_server::model::derived::Derived;
use ropeway_server::ops::health::Phase;
use ropeway_server::{App, Model, ModelFacts, Models, router};
use ropeway_text::Delta;
use serde_json::{Value, json};
use tower::ServiceExt;

/// A server that thinks `Hm.`, says `Good day` and calls `wave`, to as many choices as are asked for.
#[derive(Default)]
struct Polite {
    asked: Mutex<Vec<Job>>,
}

impl ChatBackend for Polite {
    fn ask(&self, ask: ChatAsk) -> Result<ChatEvents, RequestError> {
        let events: Vec<_> =
            (0..ask.request.sequences()).flat_map(|choice| answer(choice, &ask.job)).collect();
        self.asked.lock().unwrap().push(ask.job);
        Ok(Box::pin(stream::iter(events)))
    }

    fn context(&self) -> usize {
        8192
    }

    fn abilities(&self) -> ChatAbilities {
        ChatAbilities { tools: true, thinking: false }
    }

    fn load(&self) -> Load {
        Load::default()
    }

    fn stop(&self) {}
}

fn answer(choice: usize, job: &Job) -> Vec<GenerationEvent> {
    let mut deltas = vec![Delta::Text("Good ".into()), Delta::Text("day".into())];
    let calls = matches!(&job.prompt, Prompt::Conversation(conversation) if !conversation.tools.is_empty());
    if calls {
        deltas.push(Delta::ToolCall { index: 0, name: "wave".into() });
        deltas.push(Delta::Arguments { index: 0, json: "{\"hands\": 2}".into() });
    }
    let output = |delta| GenerationEvent::Output { choice, deltas: vec![delta], tokens: Vec::new() };
    let usage = Usage { prompt: 11, cached: 3, generated: 4, ..Usage::default() };
    let finish = Finish {
        reason: StopReason::EndOfText,
        end_token: None,
        called_tools: calls,
        reasoning_tokens: 0,
        usage,
    };
    let placed = GenerationEvent::Placed { choice, upstream: "gpu1".into() };
    let end = GenerationEvent::Finished { choice, finish };
    std::iter::once(placed).chain(deltas.into_iter().map(output)).chain([end]).collect()
}

fn app() -> (Arc<App>, Arc<Polite>) {
    let backend = Arc::new(Polite::default());
    let models = Models::default();
    let generator = Generator::of_chat(Arc::clone(&backend) as Arc<dyn ChatBackend>);
    models.add(Arc::new(Model::of_generator("far:70b".into(), generator, ModelFacts::default())));
    (Arc::new(App::new(models)), backend)
}

async fn send(app: &Arc<App>, request: Request<Body>) -> (u16, String) {
    let response = router(Arc::clone(app)).oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

async fn post(app: &Arc<App>, path: &str, body: Value) -> (u16, String) {
    send(app, Request::post(path).body(Body::from(body.to_string())).unwrap()).await
}

async fn ask(app: &Arc<App>, path: &str, body: Value) -> Value {
    let (status, text) = post(app, path, body).await;
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// Lines of a log, kept for a look.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_access_log_names_the_server_and_counts_as_it_does() {
    let (app, _) = app();
    let lines = Lines::default();
    let writer = lines.clone();
    let log =
        tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone()).finish();
    // For all threads: a callsite that another test comes to first would else be switched off for good.
    tracing::subscriber::set_global_default(log).unwrap();
    let body = json!({"model": "far:70b", "messages": hello()}).to_string();
    let request = Request::post("/v1/chat/completions").header("x-request-id", "placed");
    send(&app, request.body(Body::from(body)).unwrap()).await;
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let line = text.lines().find(|line| line.contains("\"placed\"")).expect("a line");
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["upstream"], &line["prompt_tokens"]), (&json!("gpu1"), &json!(11)));
    assert_eq!((&line["cached_tokens"], &line["output_tokens"]), (&json!(3), &json!(4)));
}

fn hello() -> Value {
    json!([{"role": "user", "content": "Hello"}])
}

fn wave() -> Value {
    json!([{"type": "function", "function": {"name": "wave", "parameters": {"type": "object"}}}])
}

#[tokio::test]
async fn every_family_answers_with_the_other_servers_text_and_usage() {
    let (app, _) = app();
    let chat = json!({"model": "far:70b", "messages": hello(), "n": 2, "tools": wave()});
    let chat = ask(&app, "/v1/chat/completions", chat).await;
    assert_eq!(chat["choices"][1]["message"]["content"], "Good day");
    assert_eq!(chat["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{\"hands\": 2}");
    assert_eq!(chat["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(chat["usage"]["prompt_tokens"], 11);
    assert_eq!(chat["usage"]["completion_tokens"], 8);
    let texts = json!({"model": "far:70b", "prompt": ["a", "b"], "echo": true});
    let texts = ask(&app, "/v1/completions", texts).await;
    assert_eq!(texts["choices"][1]["text"], "bGood day");
    assert_eq!(texts["usage"]["prompt_tokens"], 22);
    let message = json!({"model": "far:70b", "max_tokens": 9, "messages": hello()});
    assert_eq!(ask(&app, "/v1/messages", message).await["content"][0]["text"], "Good day");
    let response = json!({"model": "far:70b", "input": "Hello", "store": false});
    let response = ask(&app, "/v1/responses", response).await;
    assert_eq!(response["output"][0]["content"][0]["text"], "Good day");
    let ollama = json!({"model": "far:70b", "messages": hello(), "stream": false});
    let ollama = ask(&app, "/api/chat", ollama).await;
    assert_eq!((&ollama["message"]["content"], &ollama["eval_count"]), (&json!("Good day"), &json!(4)));
    let generate = json!({"model": "far:70b", "prompt": "Hello", "stream": false});
    let generate = ask(&app, "/api/generate", generate).await;
    assert_eq!((&generate["response"], generate.get("context")), (&json!("Good day"), None));
    let plain = json!({"prompt": "Hello"});
    assert_eq!(ask(&app, "/generate", plain).await["generated_text"], "Good day");
}

#[tokio::test]
async fn streams_carry_the_text_as_it_comes() {
    let (app, _) = app();
    for (path, body, piece) in [
        ("/v1/chat/completions", json!({"messages": hello(), "stream": true}), "\"content\":\"Good \""),
        ("/v1/completions", json!({"prompt": "a", "stream": true}), "\"text\":\"Good \""),
        ("/v1/messages", json!({"messages": hello(), "max_tokens": 5, "stream": true}), "\"text\":\"Good \""),
        ("/api/chat", json!({"messages": hello()}), "\"content\":\"Good \""),
    ] {
        let mut body = body;
        body["model"] = "far:70b".into();
        let (status, text) = post(&app, path, body).await;
        assert!(status == 200 && text.contains(piece), "{path}: {text}");
    }
}

#[tokio::test]
async fn what_needs_the_tokenizer_is_a_400_that_names_the_field() {
    let (app, _) = app();
    for (path, body, field) in [
        ("/tokenize", json!({"prompt": "x"}), None),
        ("/detokenize", json!({"tokens": [1]}), None),
        ("/v1/messages/count_tokens", json!({"messages": hello()}), None),
        ("/v1/chat/completions", json!({"messages": hello(), "logprobs": true}), Some("logprobs")),
        ("/v1/chat/completions", json!({"messages": hello(), "logit_bias": {"1": 5}}), Some("logit_bias")),
        ("/v1/completions", json!({"prompt": [1, 2], "echo": true}), Some("prompt")),
        ("/v1/completions", json!({"prompt": "a", "suffix": "b"}), Some("suffix")),
        ("/v1/completions", json!({"prompt": "a", "stop_token_ids": [1]}), Some("stop_token_ids")),
        (
            "/v1/completions",
            json!({"prompt": "a", "truncate_prompt_tokens": 3}),
            Some("truncate_prompt_tokens"),
        ),
    ] {
        let mut body = body;
        body["model"] = "far:70b".into();
        let (status, text) = post(&app, path, body).await;
        assert!(status == 400 && text.contains("tokenizer is not here"), "{path}: {status} {text}");
        if let Some(field) = field {
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["error"]["param"], field);
        }
    }
    let thinking = json!({"model": "far:70b", "messages": hello(), "think": true});
    assert_eq!(post(&app, "/api/chat", thinking).await.0, 400);
    let template = json!({"model": "far:70b", "prompt": "x", "template": "{{ .Prompt }}"});
    assert_eq!(post(&app, "/api/generate", template).await.0, 400);
}

#[tokio::test]
async fn ollamas_defaults_set_nothing_that_openais_api_has_no_word_for() {
    let (app, backend) = app();
    let chat = json!({"model": "far:70b", "messages": hello(), "stream": false});
    ask(&app, "/api/chat", chat.clone()).await;
    let mut own = chat;
    own["options"] = json!({"top_k": 7});
    ask(&app, "/api/chat", own).await;
    let asked = backend.asked.lock().unwrap();
    let params: Vec<_> = asked.iter().map(|job| job.sampling.params()).collect();
    assert_eq!((params[0].top_k, params[0].penalty_window, params[1].top_k), (0, None, 7));
}

#[tokio::test]
async fn a_text_model_is_listed_shown_and_ready_like_any_other() {
    let (app, _) = app();
    let get = async |path: &str| {
        let (status, text) = send(&app, Request::get(path).body(Body::empty()).unwrap()).await;
        assert_eq!(status, 200, "{path}: {text}");
        text
    };
    app.life.enter(Phase::Ready);
    for path in ["/v1/models", "/api/tags", "/api/ps", "/health"] {
        assert!(get(path).await.contains("far:70b"), "{path}");
    }
    let metrics = get("/metrics").await;
    assert!(metrics.contains("ropeway_num_requests_running{model_name=\"far:70b\"} "), "{metrics}");
    assert!(!metrics.contains("ropeway_steps_total{model_name=\"far:70b\"}"), "it has no engine");
    let models: Value = serde_json::from_str(&get("/v1/models").await).unwrap();
    assert_eq!(models["data"][0]["max_model_len"], 8192);
    let shown = ask(&app, "/api/show", json!({"model": "far:70b"})).await;
    assert_eq!(shown["capabilities"], json!(["completion", "tools"]));
}

#[tokio::test]
async fn a_model_made_of_a_text_model_adds_its_words_but_no_template() {
    let (app, backend) = app();
    app.models.add_derived(Derived {
        name: "mario".into(),
        from: "far:70b".into(),
        system: "You are Mario.".into(),
        template: "{{ messages[0].content }}".into(),
        ..Derived::default()
    });
    let chat = json!({"model": "mario", "messages": hello()});
    assert_eq!(ask(&app, "/v1/chat/completions", chat).await["model"], "mario");
    let asked = backend.asked.lock().unwrap();
    let Prompt::Conversation(conversation) = &asked[0].prompt else { panic!("a conversation") };
    assert_eq!(conversation.messages[0]["content"], "You are Mario.");
}
