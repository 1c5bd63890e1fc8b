//! What one client may do, and what it may learn about others.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request};
use ropeway_server::error::ApiError;
use ropeway_server::guard::clients::Allowance;
use ropeway_server::guard::origin::TrustedProxies;
use ropeway_server::library::{
    BlobDigest, Description, Detail, Download, Fetching, Installed, Library, Shelf,
};
use ropeway_server::model::derived::Derived;
use ropeway_server::{App, Model, ModelFacts, Models};
use serde_json::{Value, json};

use crate::support::{app, chat, get, model, outcome, post, question};

/// Finds everything, and changes nothing.
struct Disk;

impl Library for Disk {
    fn installed(&self) -> Result<Vec<Installed>, ApiError> {
        Ok(["first:1b", "second:1b"]
            .map(|name| Installed { name: name.into(), facts: ModelFacts::default() })
            .into())
    }

    fn download(&self, name: &str) -> Result<Arc<dyn Download>, ApiError> {
        Ok(Arc::new(Done(name.into())))
    }

    fn load(&self, name: &str) -> Result<Arc<Model>, ApiError> {
        Ok(model(name, 8).expect("a tokenizer").0)
    }

    fn copy(&self, model: &str, _: &str) -> Result<String, ApiError> {
        Ok(model.into())
    }

    fn delete(&self, name: &str) -> Result<String, ApiError> {
        Ok(name.into())
    }

    fn describe(&self, name: &str, _: Detail) -> Result<Description, ApiError> {
        Ok(Description { name: name.into(), ..Description::default() })
    }

    fn keep_derived(&self, _: &Derived) -> Result<(), ApiError> {
        Ok(())
    }

    fn forget_derived(&self, _: &str) -> Result<(), ApiError> {
        Ok(())
    }

    fn blob(&self, digest: &BlobDigest) -> std::path::PathBuf {
        std::env::temp_dir().join(digest.hex())
    }
}

/// A download with nothing to do.
struct Done(String);

impl Download for Done {
    fn model(&self) -> &str {
        &self.0
    }

    fn run(&self, _: &mut dyn FnMut(Fetching)) -> Result<(), ApiError> {
        Ok(())
    }

    fn stop(&self) {}
}

/// Serves `first:1b` and `second:1b`, with a library.
fn shelved(change: impl FnOnce(&mut App)) -> Option<Arc<App>> {
    let models = Models::default();
    for name in ["first:1b", "second:1b"] {
        models.add(model(name, 64)?.0);
    }
    let mut app = App { shelf: Some(Shelf::new(Arc::new(Disk))), ..App::new(models) };
    change(&mut app);
    Some(Arc::new(app))
}

fn with_keys(keys: &str) -> Option<Arc<App>> {
    shelved(|app| app.guard.keys = keys.parse().expect("keys"))
}

fn key(key: &str) -> [(&str, &str); 1] {
    [("x-api-key", key)]
}

fn deleting(name: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = post("/api/delete", headers, &json!({ "model": name }));
    *request.method_mut() = Method::DELETE;
    request
}

/// What changes models, in an order in which each works.
fn changes(headers: &[(&str, &str)]) -> Vec<(&'static str, Request<Body>)> {
    let first = |extra: Value| {
        let mut body = json!({ "model": "first:1b" });
        body.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        body
    };
    vec![
        ("pull", post("/api/pull", headers, &first(json!({ "stream": false })))),
        ("admin", post("/api/copy", headers, &json!({ "source": "first:1b", "destination": "other" }))),
        ("admin", post("/api/generate", headers, &first(json!({ "keep_alive": 0 })))),
        ("admin", post("/api/generate", headers, &first(json!({})))),
        ("admin", deleting("first:1b", headers)),
    ]
}

#[tokio::test]
async fn a_key_changes_nothing_without_the_right_that_the_answer_names() {
    let Some(app) = with_keys("sk-plain-1 max-priority=bulk\nsk-admin-1 admin\nsk-puller-1 pull") else {
        return;
    };
    for (right, request) in changes(&key("sk-plain-1")) {
        // The model is loaded, so that loading it changes nothing.
        let loads = request.uri().path() == "/api/generate" && right == "admin";
        let (status, _, body) = outcome(&app, request).await;
        assert!(
            status == 403 && body.contains(&format!("`{right}`")) || loads && status == 200,
            "{status}: {body}"
        );
    }
    assert_eq!(app.models.all().len(), 2, "the model is still there");
    let puller = key("sk-puller-1");
    assert_eq!(
        outcome(&app, post("/api/pull", &puller, &json!({"model": "x", "stream": false}))).await.0,
        200
    );
    assert_eq!(outcome(&app, deleting("first:1b", &puller)).await.0, 403);
    for (_, request) in changes(&key("sk-admin-1")) {
        let path = request.uri().path().to_owned();
        let (status, _, body) = outcome(&app, request).await;
        assert_eq!(status, 200, "{path}: {body}");
    }
    assert_eq!(app.models.all().len(), 1);
    let (status, _, body) =
        outcome(&app, post("/api/generate", &key("sk-plain-1"), &json!({"model": "first:1b"}))).await;
    assert!(status == 403 && body.contains("`admin`"), "loading needs it too: {body}");
}

#[tokio::test]
async fn a_question_with_keep_alive_0_unloads_nothing_without_the_right() {
    let Some(app) = with_keys("sk-plain-1") else { return };
    app.models.find("first:1b").expect("served").lease.lend(ropeway_server::model::lease::KeepAlive::Forever);
    let body = question(json!({ "model": "first:1b", "stream": false, "keep_alive": 0 }));
    assert_eq!(outcome(&app, post("/api/chat", &key("sk-plain-1"), &body)).await.0, 200);
    assert_eq!(app.models.find("first:1b").expect("still served").lease.expires(), None);
}

#[tokio::test]
async fn a_key_for_some_models_finds_no_trace_of_the_others() {
    let Some(app) = with_keys("sk-second-1 models=second pull") else { return };
    let own = key("sk-second-1");
    for path in ["/v1/models", "/api/tags", "/api/ps", "/health"] {
        let (status, _, body) = outcome(&app, get(path, &own)).await;
        assert!(body.contains("second:1b") && !body.contains("first:1b"), "{path}: {status} {body}");
    }
    let anthropic = [own[0], ("anthropic-version", "2023-06-01")];
    let (_, _, body) = outcome(&app, get("/v1/models", &anthropic)).await;
    assert!(body.contains("second:1b") && !body.contains("first:1b"), "{body}");
    let with = |model: &str| question(json!({ "model": model, "stream": false }));
    for path in ["/v1/chat/completions", "/v1/messages", "/api/chat"] {
        let (status, _, hidden) = outcome(&app, post(path, &own, &with("first:1b"))).await;
        let (_, _, missing) = outcome(&app, post(path, &own, &with("never:1b"))).await;
        assert_eq!(status, 404, "{hidden}");
        assert_eq!(hidden.replace("first:1b", "never:1b"), missing, "{path}");
        assert_eq!(outcome(&app, post(path, &own, &with("second"))).await.0, 200);
    }
    for (path, body) in [
        ("/api/show", json!({ "model": "first:1b" })),
        ("/tokenize", json!({ "model": "first:1b", "prompt": "x" })),
        ("/api/pull", json!({ "model": "first:1b" })),
    ] {
        let (status, _, body) = outcome(&app, post(path, &own, &body)).await;
        assert_eq!(status, 404, "{path}: {body}");
    }
    assert_eq!(outcome(&app, get("/v1/models/first:1b", &own)).await.0, 404);
    let nameless = question(json!({ "model": null }));
    let (_, _, body) = outcome(&app, chat(&own, &nameless)).await;
    assert!(body.contains("second:1b"), "the first model that exists for it: {body}");
}

#[tokio::test]
async fn figures_are_for_keys_with_the_right_and_health_names_no_model_without_a_key() {
    let keys = "sk-plain-1\nsk-watch-1 metrics\nsk-admin-1 admin";
    let Some(app) = with_keys(keys) else { return };
    let metrics =
        async |app: &Arc<App>, headers: &[(&str, &str)]| outcome(app, get("/metrics", headers)).await.0;
    assert_eq!(metrics(&app, &[]).await, 401);
    assert_eq!(metrics(&app, &key("sk-plain-1")).await, 403);
    assert_eq!(metrics(&app, &[("authorization", "Bearer sk-watch-1")]).await, 200);
    assert_eq!(metrics(&app, &key("sk-admin-1")).await, 200);
    let (_, _, body) = outcome(&app, get("/health", &[])).await;
    assert!(body.contains("status") && !body.contains("first"), "{body}");
    let open = |app: &mut App| {
        app.guard.keys = keys.parse().expect("keys");
        app.guard.has_open_metrics = true;
    };
    let Some(app) = shelved(open) else { return };
    assert_eq!(metrics(&app, &[]).await, 200);
}

fn from(address: &str, mut request: Request<Body>) -> Request<Body> {
    let peer = SocketAddr::new(address.parse::<IpAddr>().expect("an address"), 4242);
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}

#[tokio::test]
async fn without_keys_this_machine_may_do_everything_and_others_only_ask() {
    let Some(app) = shelved(|_| ()) else { return };
    let pull =
        |headers: &[(&str, &str)]| post("/api/pull", headers, &json!({ "model": "x", "stream": false }));
    assert_eq!(outcome(&app, from("127.0.0.1", pull(&[]))).await.0, 200);
    assert_eq!(outcome(&app, from("::1", pull(&[]))).await.0, 200);
    let (status, _, body) = outcome(&app, from("10.0.0.7", pull(&[]))).await;
    assert!(status == 403 && body.contains("--api-keys-file"), "{body}");
    let forwarded = [("x-forwarded-for", "203.0.113.9")];
    assert_eq!(
        outcome(&app, from("127.0.0.1", pull(&forwarded))).await.0,
        403,
        "it speaks for another machine"
    );
    for request in
        [chat(&[], &question(json!({ "model": "first:1b" }))), get("/metrics", &[]), get("/api/tags", &[])]
    {
        assert_eq!(outcome(&app, from("10.0.0.7", request)).await.0, 200);
    }
}

#[tokio::test]
async fn accounts_are_those_of_the_clients_behind_a_trusted_proxy() {
    let one = Allowance { tokens_per_minute: NonZeroU32::new(1), ..Allowance::default() };
    let trusting = |app: &mut App| {
        app.guard.allowance = one;
        app.guard.proxies = TrustedProxies::new(vec!["10.0.0.1".parse().expect("an address")]);
    };
    let Some(app) = app(trusting) else { return };
    let ask = async |peer: &str, client: &str| {
        let headers = [("x-forwarded-for", client)];
        outcome(&app, from(peer, chat(&headers, &question(json!({}))))).await.0
    };
    assert_eq!(ask("10.0.0.1", "203.0.113.1").await, 200);
    assert_eq!(
        ask("10.0.0.1", "198.51.100.7, 203.0.113.1").await,
        429,
        "what it adds itself is not believed"
    );
    assert_eq!(ask("10.0.0.1", "203.0.113.2").await, 200);
    assert_eq!(ask("10.0.0.1", "2001:db8::1").await, 200);
    assert_eq!(ask("10.0.0.1", "2001:db8::2").await, 429, "the same network of 64 bits");
    assert_eq!(ask("10.0.0.9", "203.0.113.3").await, 200);
    assert_eq!(ask("10.0.0.9", "203.0.113.4").await, 429, "this one is not trusted");
}

async fn cached(app: &Arc<App>, path: &str, headers: &[(&str, &str)], extra: Value) -> u64 {
    let text = "Tell me all about the history of the ropeway. ".repeat(8);
    let mut body = json!({ "model": "first:1b", "max_tokens": 2 });
    match path {
        "/v1/responses" => body["input"] = text.into(),
        "/v1/completions" | "/generate" => body["prompt"] = text.into(),
        _ => body["messages"] = json!([{ "role": "user", "content": text }]),
    }
    body.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
    let (status, _, body) = outcome(app, post(path, headers, &body)).await;
    assert_eq!(status, 200, "{body}");
    let body: Value = serde_json::from_str(&body).expect("JSON");
    let places = [
        "/usage/prompt_tokens_details/cached_tokens",
        "/usage/input_tokens_details/cached_tokens",
        "/usage/cache_read_input_tokens",
        "/stats/cached_tokens",
    ];
    places.iter().find_map(|place| body.pointer(place)?.as_u64()).unwrap_or_else(|| panic!("{body}"))
}

const ROUTES: [&str; 5] =
    ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/generate"];

#[tokio::test]
async fn one_keys_prompts_are_not_found_by_another() {
    for path in ROUTES {
        let Some(app) = with_keys("sk-alice-1\nsk-bob-1234") else { return };
        let ask = async |name: &str| cached(&app, path, &key(name), json!({})).await;
        assert_eq!(ask("sk-alice-1").await, 0, "{path}");
        assert_eq!(ask("sk-bob-1234").await, 0, "{path}: what alice asked is not bob's to know");
        assert!(
            ask("sk-alice-1").await > 0 && ask("sk-bob-1234").await > 0,
            "{path}: their own is found again"
        );
    }
    let sharing = |app: &mut App| {
        app.guard.keys = "sk-alice-1\nsk-bob-1234".parse().expect("keys");
        app.guard.shares_prefixes = true;
    };
    let Some(app) = shelved(sharing) else { return };
    assert_eq!(cached(&app, ROUTES[0], &key("sk-alice-1"), json!({})).await, 0);
    assert!(cached(&app, ROUTES[0], &key("sk-bob-1234"), json!({})).await > 0, "the operator said so");
}

#[tokio::test]
async fn a_cache_salt_divides_the_prompts_of_a_client() {
    for path in ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/generate"] {
        let Some(app) = shelved(|_| ()) else { return };
        assert_eq!(cached(&app, path, &[], json!({ "cache_salt": "a" })).await, 0);
        assert_eq!(cached(&app, path, &[], json!({ "cache_salt": "b" })).await, 0, "{path}");
        assert_eq!(cached(&app, path, &[], json!({})).await, 0, "{path}");
        assert!(cached(&app, path, &[], json!({ "cache_salt": "a" })).await > 0, "{path}");
        assert!(cached(&app, path, &[], json!({})).await > 0, "{path}: without keys and salts all share");
        let empty = json!({ "cache_salt": "", "prompt": "x", "input": "x", "messages": [] });
        let (status, _, body) = outcome(&app, post(path, &[], &empty)).await;
        assert!(status == 400 && body.contains("cache_salt"), "{body}");
    }
}

#[tokio::test]
async fn every_route_that_works_counts_as_a_request_of_its_client() {
    let limited =
        |app: &mut App| app.guard.keys = "sk-alice-1 admin tokens-per-minute=1".parse().expect("keys");
    let routes = [
        ("/tokenize", json!({ "model": "first:1b", "prompt": "some words" })),
        ("/detokenize", json!({ "model": "first:1b", "tokens": [1, 2, 3] })),
        ("/v1/messages/count_tokens", question(json!({ "model": "first:1b" }))),
        ("/generate/batch", json!({ "model": "first:1b", "prompts": ["a", "b"] })),
        ("/api/generate", json!({ "model": "first:1b", "prompt": "x", "stream": false })),
        ("/v1/responses", json!({ "model": "first:1b", "input": "x", "max_output_tokens": 2 })),
    ];
    let alice = key("sk-alice-1");
    for (path, body) in &routes {
        let Some(app) = shelved(limited) else { return };
        assert_eq!(outcome(&app, post(path, &alice, body)).await.0, 200, "{path}");
        for (other, body) in &routes {
            assert_eq!(outcome(&app, post(other, &alice, body)).await.0, 429, "{other} after {path}");
        }
        for path in ["/api/pull", "/v1/embeddings", "/v1/rerank", "/api/embed"] {
            assert_eq!(
                outcome(&app, post(path, &alice, &json!({ "model": "x", "input": "x" }))).await.0,
                429,
                "{path}"
            );
        }
        assert_eq!(outcome(&app, get("/v1/models", &alice)).await.0, 200, "looking is free");
        assert_eq!(outcome(&app, post("/api/event_logging/batch", &alice, &json!({}))).await.0, 200);
    }
}

#[tokio::test]
async fn several_answers_or_prompts_count_as_several_requests() {
    let Some(app) = with_keys("sk-alice-1 concurrency=3") else { return };
    let alice = key("sk-alice-1");
    let ask = async |path: &str, body: Value| outcome(&app, post(path, &alice, &body)).await;
    assert_eq!(ask("/v1/chat/completions", question(json!({ "model": "first:1b", "n": 3 }))).await.0, 200);
    for (path, body) in [
        ("/v1/chat/completions", question(json!({ "model": "first:1b", "n": 4 }))),
        ("/v1/completions", json!({ "model": "first:1b", "prompt": ["a", "b"], "n": 2, "best_of": 2 })),
        ("/generate/batch", json!({ "model": "first:1b", "prompts": ["a", "b", "c", "d"] })),
    ] {
        let (status, _, body) = ask(path, body).await;
        assert!(status == 400 && body.contains("count as 4 requests"), "{path}: {body}");
    }
    let (status, _, body) =
        ask("/v1/chat/completions", question(json!({ "model": "first:1b", "n": 17 }))).await;
    assert!(status == 400, "{body}");
    let Some(app) = shelved(|_| ()) else { return };
    let (status, _, body) =
        outcome(&app, chat(&[], &question(json!({ "model": "first:1b", "n": 17 })))).await;
    assert!(status == 400 && body.contains("n is at most 16") && body.contains("--max-n 17"), "{body}");
}
