//! Agents and sessions: made, listed, asked, sent away, found again after a restart; and each tenant's apart.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request};
use ropeway_server::App;
use serde_json::{Value, json};

use crate::kept::Kept;
use crate::support::{app, chat, get, outcome, post, question};

/// Status and body.
async fn ask(app: &Arc<App>, request: Request<Body>) -> (u16, Value) {
    let (status, _, body) = outcome(app, request).await;
    (status, serde_json::from_str(&body).unwrap_or_else(|_| json!(body)))
}

fn delete(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = get(path, headers);
    *request.method_mut() = Method::DELETE;
    request
}

fn ids(list: &Value) -> Vec<&str> {
    list["data"].as_array().expect("a list").iter().filter_map(|agent| agent["id"].as_str()).collect()
}

/// A text of many blocks.
fn long(subject: &str) -> String {
    format!("Tell me everything about {subject}. ").repeat(12)
}

fn turn(extra: &Value) -> Value {
    let mut body = json!({ "prompt": long("bridges"), "max_tokens": 20, "seed": 1 });
    body.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
    body
}

#[tokio::test]
async fn an_agent_is_made_once_listed_and_deleted() {
    let Some(app) = app(|_| ()) else { return };
    let body = json!({ "id": "coder", "name": "My coder", "system": "Be brief.", "ttl_seconds": 600 });
    let (status, made) = ask(&app, post("/v1/agents", &[], &body)).await;
    assert_eq!(status, 201, "{made}");
    let expected = json!({
        "id": "coder", "object": "agent", "kind": "agent", "name": "My coder", "model": "smollm2:135m",
        "tier": "none", "tokens": 0, "bytes": 0, "messages": 1, "requests": 0, "hits": 0, "ttl_seconds": 600,
    });
    for (field, value) in expected.as_object().expect("fields") {
        assert_eq!(&made[field], value, "{field}");
    }
    for time in ["created_at", "last_used_at", "expires_at"] {
        assert!(made[time].as_str().is_some_and(|text| text.ends_with('Z')), "{time}");
    }
    let (status, error) = ask(&app, post("/v1/agents", &[], &body)).await;
    assert_eq!((status, &error["error"]["code"]), (409, &json!("agent_exists")));
    let (status, other) = ask(&app, post("/v1/agents", &[], &json!({}))).await;
    assert!(status == 201 && other["id"].as_str().is_some_and(|id| id.starts_with("agent_")), "{other}");
    let (_, list) = ask(&app, get("/v1/agents", &[])).await;
    assert_eq!(ids(&list).len(), 2);
    assert_eq!(ask(&app, get("/v1/agents/coder", &[])).await.1, made);
    let (status, gone) = ask(&app, delete("/v1/agents/coder", &[])).await;
    assert_eq!((status, &gone["deleted"]), (200, &json!(true)));
    for request in [get("/v1/agents/coder", &[]), delete("/v1/agents/coder", &[])] {
        let (status, error) = ask(&app, request).await;
        assert_eq!((status, &error["error"]["code"]), (404, &json!("agent_not_found")));
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_turned_down_with_the_field_at_fault() {
    let Some(app) = app(|_| ()) else { return };
    for (body, param) in [
        (json!({ "id": "a/b" }), "id"),
        (json!({ "id": "stats" }), "id"),
        (json!({ "ttl_seconds": 5 }), "ttl_seconds"),
        (json!({ "ttl_seconds": 9_999_999 }), "ttl_seconds"),
        (json!({ "name": "x".repeat(300) }), "name"),
        (json!({ "messages": [{ "role": "nobody", "content": "" }] }), "messages.0.role"),
    ] {
        let (status, error) = ask(&app, post("/v1/agents", &[], &body)).await;
        assert_eq!((status, &error["error"]["param"]), (400, &json!(param)), "{body}: {error}");
    }
    let (status, _) = ask(&app, post("/v1/agents", &[], &json!({ "model": "other" }))).await;
    assert_eq!(status, 404);
    ask(&app, post("/v1/agents", &[], &json!({ "id": "a" }))).await;
    for body in [json!({}), json!({ "messages": [] }), json!({ "prompt": "x", "messages": [{}] })] {
        let (status, error) = ask(&app, post("/v1/agents/a/generate", &[], &body)).await;
        assert_eq!((status, &error["error"]["param"]), (400, &json!("prompt")), "{body}: {error}");
    }
    assert_eq!(ask(&app, post("/v1/agents/b/generate", &[], &json!({ "prompt": "x" }))).await.0, 404);
    assert_eq!(ask(&app, delete("/v1/agents/a?evict_only=perhaps", &[])).await.0, 400);
    let (_, agent) = ask(&app, get("/v1/agents/a", &[])).await;
    assert_eq!(agent["messages"], 0, "nothing that failed was said: {agent}");
}

#[tokio::test]
async fn every_turn_of_an_agent_goes_on_from_the_one_before() {
    let Some(app) = app(|_| ()) else { return };
    ask(&app, post("/v1/agents", &[], &json!({ "id": "a", "system": "Be brief." }))).await;
    let (status, first) = ask(&app, post("/v1/agents/a/generate", &[], &turn(&json!({})))).await;
    assert_eq!(status, 200, "{first}");
    assert_eq!((&first["agent_id"], &first["tokens_generated"]), (&json!("a"), &json!(20)));
    assert_eq!((&first["cached_tokens"], &first["full_text"]), (&json!(0), &Value::Null));
    for field in ["time_seconds", "tokens_per_second", "time_to_first_token", "stats", "generated_text"] {
        assert!(!first[field].is_null(), "{field}");
    }
    let (_, again) = ask(&app, post("/v1/agents/a/generate", &[], &turn(&json!({})))).await;
    let count = |turn: &Value, field: &str| turn[field].as_u64().expect("a number");
    let before = first["stats"]["prompt_tokens"].as_u64().expect("a number");
    assert!(count(&again, "cached_tokens") + 16 > before, "all of the first turn's prompt: {again}");
    let (_, agent) = ask(&app, get("/v1/agents/a", &[])).await;
    assert_eq!((&agent["messages"], &agent["requests"], &agent["hits"]), (&json!(5), &json!(2), &json!(1)));
    assert_eq!(agent["tier"], "memory");
    assert!(count(&agent, "tokens") > before && count(&agent, "tokens") % 16 == 0, "{agent}");
    assert_eq!(count(&agent, "bytes"), count(&agent, "tokens") * 8);
    let (_, anew) = ask(&app, post("/v1/agents/a/generate", &[], &turn(&json!({ "reset": true })))).await;
    assert_eq!(anew["stats"]["prompt_tokens"], first["stats"]["prompt_tokens"]);
    assert_eq!(anew["generated_text"], first["generated_text"]);
    assert_eq!(ask(&app, get("/v1/agents/a", &[])).await.1["messages"], 3);
}

#[tokio::test]
async fn a_streamed_turn_is_remembered_like_a_whole_one() {
    let Some(app) = app(|_| ()) else { return };
    for id in ["whole", "streamed"] {
        ask(&app, post("/v1/agents", &[], &json!({ "id": id }))).await;
    }
    let (_, whole) = ask(&app, post("/v1/agents/whole/generate", &[], &turn(&json!({})))).await;
    let (status, events) =
        ask(&app, post("/v1/agents/streamed/generate", &[], &turn(&json!({ "stream": true })))).await;
    let events = events.as_str().expect("events").to_owned();
    let data = events.lines().filter_map(|line| line.strip_prefix("data: {"));
    let tokens = data.map(|line| serde_json::from_str::<Value>(&format!("{{{line}")).expect("JSON"));
    let text: String = tokens.filter_map(|event| event["token"].as_str().map(str::to_owned)).collect();
    assert_eq!((status, json!(text)), (200, whole["generated_text"].clone()));
    let next = |id: &str| post(&format!("/v1/agents/{id}/generate"), &[], &turn(&json!({})));
    let (_, one) = ask(&app, next("whole")).await;
    let (_, other) = ask(&app, next("streamed")).await;
    assert_eq!(one["generated_text"], other["generated_text"]);
    assert_eq!(ask(&app, get("/v1/agents/streamed", &[])).await.1["messages"], 4);
}

#[tokio::test]
async fn requests_of_every_family_that_name_a_session_are_listed_under_it() {
    let Some(app) = app(|_| ()) else { return };
    let body = question(json!({ "stream": false }));
    for (path, header) in [
        ("/v1/chat/completions", ("x-session-id", "openai")),
        ("/v1/messages", ("x-claude-code-session-id", "claude")),
        ("/api/chat", ("x-agent-id", "ollama")),
    ] {
        assert_eq!(ask(&app, post(path, &[header], &body)).await.0, 200);
    }
    let named = question(json!({ "session_id": "by body", "user": "somebody" }));
    assert_eq!(ask(&app, chat(&[], &named)).await.0, 200);
    assert_eq!(ask(&app, chat(&[], &question(json!({ "user": "somebody" })))).await.0, 200);
    assert_eq!(
        ask(&app, post("/generate", &[], &json!({ "prompt": "a", "session_id": "plain" }))).await.0,
        200
    );
    let (_, list) = ask(&app, get("/v1/agents", &[])).await;
    let mut listed = ids(&list);
    listed.sort_unstable();
    assert_eq!(listed.len(), 5, "a user is no session: {listed:?}");
    assert!(listed.iter().any(|id| id.starts_with("session-")), "{listed:?}");
    let (_, session) = ask(&app, get("/v1/agents/by%20body", &[])).await;
    assert_eq!((&session["kind"], &session["requests"]), (&json!("session"), &json!(1)), "{session}");
    let (status, _) = ask(&app, post("/v1/agents/claude/generate", &[], &json!({ "prompt": "x" }))).await;
    assert_eq!(status, 404, "its conversation is its client's");
    let (status, made) = ask(&app, post("/v1/agents", &[], &json!({ "id": "claude" }))).await;
    assert_eq!((status, &made["kind"], &made["requests"]), (201, &json!("agent"), &json!(1)));
    let (_, stats) = ask(&app, get("/v1/agents/stats", &[])).await;
    assert_eq!((&stats["agents"], &stats["sessions"], &stats["requests"]), (&json!(1), &json!(4), &json!(5)));
}

#[tokio::test]
async fn nobody_sees_asks_or_deletes_the_agents_of_another_key() {
    let Some(app) = app(|app| app.guard.keys = "sk-alice-1\nsk-bob-1234".parse().expect("keys")) else {
        return;
    };
    let (alice, bob) = ([("x-api-key", "sk-alice-1")], [("x-api-key", "sk-bob-1234")]);
    assert_eq!(ask(&app, post("/v1/agents", &alice, &json!({ "id": "a" }))).await.0, 201);
    let named = [alice[0], ("x-session-id", "s")];
    assert_eq!(ask(&app, chat(&named, &question(json!({})))).await.0, 200);
    assert_eq!(ask(&app, get("/v1/agents", &bob)).await.1["data"], json!([]));
    for path in ["/v1/agents/a", "/v1/agents/s"] {
        assert_eq!(ask(&app, get(path, &alice)).await.0, 200);
        let hidden = ask(&app, get(path, &bob)).await;
        let missing = ask(&app, get("/v1/agents/x", &bob)).await;
        assert_eq!(hidden.0, 404);
        let id = path.rsplit('/').next().expect("an id");
        assert_eq!(
            hidden.1.to_string().replace(&format!("\\\"{id}\\\""), "\\\"x\\\""),
            missing.1.to_string()
        );
        assert_eq!(ask(&app, delete(path, &bob)).await.0, 404);
    }
    assert_eq!(ask(&app, post("/v1/agents/a/generate", &bob, &json!({ "prompt": "x" }))).await.0, 404);
    assert_eq!(ask(&app, post("/v1/agents", &bob, &json!({ "id": "a" }))).await.0, 201, "his own");
    let (_, stats) = ask(&app, get("/v1/agents/stats", &bob)).await;
    assert_eq!((&stats["agents"], &stats["requests"], &stats["disk"]), (&json!(1), &json!(0), &Value::Null));
    assert_eq!(ask(&app, get("/v1/agents", &[])).await.0, 401);
}

#[tokio::test]
async fn memory_is_freed_without_losing_what_is_on_disk_and_all_of_it_with_the_agent() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(kept) = Kept::start(dir.path(), "") else { return };
    let app = &kept.app;
    ask(app, post("/v1/agents", &[], &json!({ "id": "a" }))).await;
    let (_, cold) = ask(app, post("/v1/agents/a/generate", &[], &turn(&json!({})))).await;
    let (_, before) = ask(app, get("/v1/agents/a", &[])).await;
    assert_eq!((&before["tier"], &before["pinned_tokens"]), (&json!("memory"), &before["tokens"]));
    let (status, after) = ask(app, delete("/v1/agents/a?evict_only=true", &[])).await;
    assert_eq!((status, &after["tier"], &after["tokens"]), (200, &json!("disk"), &before["tokens"]));
    let (_, warm) = ask(app, post("/v1/agents/a/generate", &[], &turn(&json!({ "reset": true })))).await;
    assert_eq!(warm["generated_text"], cold["generated_text"]);
    assert!(warm["disk_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{warm}");
    assert_eq!(warm["disk_tokens"], warm["cached_tokens"]);
    let (_, used) = ask(app, get("/v1/agents/a", &[])).await;
    assert_eq!((&used["hits"], &used["total_disk_tokens"]), (&json!(1), &warm["disk_tokens"]));
    let (_, stats) = ask(app, get("/v1/agents/stats", &[])).await;
    assert_eq!(stats["disk"]["size_bytes"], 64 << 20, "{stats}");
    assert!(stats["pinned_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{stats}");

    assert_eq!(ask(app, delete("/v1/agents/a", &[])).await.0, 200);
    ask(app, post("/v1/agents", &[], &json!({ "id": "a" }))).await;
    let (_, anew) = ask(app, post("/v1/agents/a/generate", &[], &turn(&json!({})))).await;
    assert_eq!((&anew["cached_tokens"], &anew["disk_tokens"]), (&json!(0), &json!(0)), "{anew}");
    kept.stop();
}

#[tokio::test]
async fn an_agent_is_here_and_warm_after_a_restart_and_a_session_is_not_listed() {
    let dir = tempfile::tempdir().expect("a folder");
    let keys = "sk-alice-1\nsk-bob-1234";
    let alice = [("x-api-key", "sk-alice-1")];
    let Some(before) = Kept::start(dir.path(), keys) else { return };
    let made = json!({ "id": "a", "name": "Anna", "system": "Be brief.", "ttl_seconds": 600 });
    ask(&before.app, post("/v1/agents", &alice, &made)).await;
    ask(&before.app, post("/v1/agents", &alice, &json!({ "id": "deleted" }))).await;
    ask(&before.app, delete("/v1/agents/deleted", &alice)).await;
    let (_, first) = ask(&before.app, post("/v1/agents/a/generate", &alice, &turn(&json!({})))).await;
    ask(&before.app, chat(&[alice[0], ("x-session-id", "s")], &question(json!({})))).await;
    let (_, then) = ask(&before.app, get("/v1/agents/a", &alice)).await;
    before.stop();

    // Keys in another order are the same keys.
    let after = Kept::start(dir.path(), "sk-bob-1234\nsk-alice-1").expect("as before");
    let (_, list) = ask(&after.app, get("/v1/agents", &alice)).await;
    assert_eq!(ids(&list), ["a"]);
    let now = &list["data"][0];
    for field in ["name", "messages", "requests", "tokens", "pinned_tokens", "created_at", "ttl_seconds"] {
        assert_eq!(now[field], then[field], "{field}");
    }
    assert_eq!(now["tier"], "disk", "{now}");
    assert_eq!(ask(&after.app, get("/v1/agents/a", &[("x-api-key", "sk-bob-1234")])).await.0, 404);
    let (_, next) = ask(&after.app, post("/v1/agents/a/generate", &alice, &turn(&json!({})))).await;
    let full_blocks = first["stats"]["prompt_tokens"].as_u64().expect("a number") / 16 * 16;
    assert!(next["disk_tokens"].as_u64().is_some_and(|tokens| tokens >= full_blocks), "{next}");
    assert_eq!(ask(&after.app, get("/v1/agents/a", &alice)).await.1["messages"], 5);
    after.stop();
}

#[tokio::test]
async fn the_disk_is_told_of_in_metrics_and_only_there_where_it_is() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(kept) = Kept::start(dir.path(), "") else { return };
    let (_, _, page) = outcome(&kept.app, get("/metrics", &[])).await;
    for figure in ["ropeway_kv_disk_size_bytes 67108864", "ropeway_kv_disk_fetched_tokens_total{model_name="]
    {
        assert!(page.contains(figure), "{figure}");
    }
    let second = Kept::start(dir.path(), "").expect("as before");
    let (status, health) = ask(&second.app, get("/health/live", &[])).await;
    let warning = health["warnings"][0].as_str().unwrap_or_default().to_owned();
    assert!(status == 200 && warning.contains("only read"), "{health}");
    second.stop();
    kept.stop();
    let Some(app) = app(|_| ()) else { return };
    let (_, _, page) = outcome(&app, get("/metrics", &[])).await;
    assert!(!page.contains("ropeway_kv_disk_size_bytes"));
    assert!(ask(&app, get("/health", &[])).await.1["warnings"].is_null());
}

#[tokio::test]
async fn an_agent_answers_one_request_at_a_time() {
    let Some((models, gate)) = crate::support::models(64) else { return };
    let app = Arc::new(App::new(models));
    ask(&app, post("/v1/agents", &[], &json!({ "id": "a" }))).await;
    let held = gate.hold();
    let running = tokio::spawn({
        let app = Arc::clone(&app);
        async move { ask(&app, post("/v1/agents/a/generate", &[], &turn(&json!({})))).await }
    });
    crate::support::until(|| gate.is_held_up()).await;
    let (status, retry, body) = outcome(&app, post("/v1/agents/a/generate", &[], &turn(&json!({})))).await;
    assert!(status == 409 && retry.is_some() && body.contains("agent_busy"), "{status}: {body}");
    assert_eq!(ask(&app, delete("/v1/agents/a", &[])).await.0, 200);
    drop(held);
    assert_eq!(running.await.expect("an answer").0, 200);
    assert_eq!(ask(&app, get("/v1/agents", &[])).await.1["data"], json!([]), "what is deleted stays so");
    ask(&app, post("/v1/agents", &[], &json!({ "id": "a" }))).await;
    assert_eq!(ask(&app, post("/v1/agents/a/generate", &[], &turn(&json!({})))).await.0, 200);
}
