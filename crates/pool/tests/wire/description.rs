//! What an upstream is found to be, which models it has, and how busy it says it is.

use ropeway_pool::error::UpstreamError;
use ropeway_pool::settings::Kind;
use ropeway_pool::upstream::{OfferedModel, ReportedLoad, Upstream};
use serde_json::{Value, json};

use crate::scripted::{Reply, Server, json};

type Routes = &'static [(&'static str, fn() -> Value)];

/// A server with these routes and no others.
async fn with_routes(routes: Routes) -> Server {
    Server::start(move |seen| match routes.iter().find(|(path, _)| *path == seen.path) {
        Some((_, body)) => json(body()),
        None => Reply::Json(404, json!({ "detail": "Not Found" })),
    })
    .await
}

async fn kind(upstream: &Upstream) -> Kind {
    upstream.describe().await.expect("a description").kind
}

fn version() -> Value {
    json!({ "version": "0.18.0" })
}

fn one_model(owner: &str) -> Value {
    json!({ "object": "list", "data": [{ "id": "m", "object": "model", "owned_by": owner }] })
}

fn no_models() -> Value {
    json!({ "object": "list", "data": [] })
}

fn props() -> Value {
    json!({ "default_generation_settings": { "n_ctx": 256 }, "model_path": "/m.gguf", "chat_template": "{{ x }}", "build_info": "b1" })
}

fn model_info() -> Value {
    json!({ "model_path": "org/model", "tokenizer_path": "org/tokenizer", "is_generation": false })
}

#[tokio::test]
async fn each_kind_is_known_by_its_models_or_by_its_routes() {
    let cases: [(Kind, Routes); 10] = [
        (Kind::Vllm, &[("/v1/models", || one_model("vllm")), ("/version", version)]),
        (Kind::Vllm, &[("/v1/models", no_models), ("/version", version)]),
        (Kind::Sglang, &[("/v1/models", || one_model("sglang"))]),
        (
            Kind::Sglang,
            &[("/v1/models", || one_model("me")), ("/get_model_info", model_info), ("/version", version)],
        ),
        (Kind::LlamaServer, &[("/v1/models", || one_model("llamacpp"))]),
        (Kind::LlamaServer, &[("/v1/models", || one_model("me")), ("/props", props)]),
        (
            Kind::Ropeway,
            &[("/v1/models", || one_model("ropeway")), ("/version", version), ("/api/version", version)],
        ),
        (Kind::Ropeway, &[("/v1/models", no_models), ("/version", version), ("/api/version", version)]),
        (Kind::Ollama, &[("/v1/models", || one_model("library")), ("/api/version", version)]),
        (Kind::Openai, &[("/v1/models", || one_model("someone"))]),
    ];
    for (number, (expected, routes)) in cases.into_iter().enumerate() {
        let server = with_routes(routes).await;
        assert_eq!(kind(&server.upstream(json!({}))).await, expected, "case {number}");
    }
}

#[tokio::test]
async fn what_the_operator_says_is_not_doubted() {
    let server = with_routes(&[("/v1/models", || one_model("vllm")), ("/version", version)]).await;
    assert_eq!(kind(&server.upstream(json!({ "kind": "openai" }))).await, Kind::Openai);
    assert!(server.asked("/version").is_empty());
}

#[tokio::test]
async fn models_come_with_all_that_is_known_about_them() {
    let vllm = with_routes(&[
        ("/v1/models", || json!({ "data": [{ "id": "m", "owned_by": "vllm", "root": "org/model", "max_model_len": 4096 }] })),
        ("/version", version),
    ])
    .await;
    let described = vllm.upstream(json!({})).describe().await.expect("a description");
    assert_eq!(described.version.as_deref(), Some("0.18.0"));
    let model = OfferedModel {
        id: "m".into(),
        root: Some("org/model".into()),
        context: Some(4096),
        ..OfferedModel::default()
    };
    assert_eq!(described.models, [model]);

    let llama = with_routes(&[("/v1/models", || one_model("llamacpp")), ("/props", props)]).await;
    let described = llama.upstream(json!({})).describe().await.expect("a description");
    let model = &described.models[0];
    assert_eq!((model.root.as_deref(), model.context), (Some("/m.gguf"), Some(256)));
    assert_eq!(model.chat_template.as_deref(), Some("{{ x }}"));

    let sglang = with_routes(&[
        (
            "/v1/models",
            || json!({ "data": [{ "id": "m", "owned_by": "sglang", "root": "m", "max_model_len": 99 }] }),
        ),
        ("/model_info", model_info),
    ])
    .await;
    let model = &sglang.upstream(json!({})).describe().await.expect("a description").models[0];
    assert_eq!((model.root.as_deref(), model.embeds), (Some("org/tokenizer"), Some(true)));
}

#[tokio::test]
async fn only_the_models_that_are_named_are_used_and_one_that_is_not_listed_is_believed() {
    let server = with_routes(&[("/v1/models", || json!({ "data": [{ "id": "a" }, { "id": "b" }] }))]).await;
    let upstream = server.upstream(json!({ "models": ["b", "c"] }));
    let ids: Vec<_> =
        upstream.describe().await.expect("a description").models.into_iter().map(|model| model.id).collect();
    assert_eq!(ids, ["b", "c"]);
    let listless = with_routes(&[]).await;
    assert!(matches!(
        listless.upstream(json!({})).describe().await,
        Err(UpstreamError::Refused { status: 404, .. })
    ));
    let named = listless.upstream(json!({ "models": "c" })).describe().await.expect("a description");
    assert_eq!((named.kind, named.models[0].id.as_str()), (Kind::Openai, "c"));
}

#[tokio::test]
async fn another_servers_json_is_foreign() {
    let server = with_routes(&[("/v1/models", || json!({ "status": "ok" }))]).await;
    let error = server.upstream(json!({})).describe().await.expect_err("foreign");
    assert!(matches!(error, UpstreamError::Foreign { .. }), "{error}");
}

#[tokio::test]
async fn its_own_queue_is_reported_and_a_missing_page_is_nothing() {
    let server = Server::start(|seen| match seen.path.as_str() {
        "/metrics" => Reply::Text(
            200,
            "content-type: text/plain\r\n",
            "sglang:num_running_reqs{model=\"m\"} 4.0\nsglang:num_queue_reqs{model=\"m\"} 2.0\n".into(),
        ),
        _ => Reply::Json(404, json!({})),
    })
    .await;
    let load = server.upstream(json!({ "kind": "sglang" })).reported_load().await;
    assert_eq!(load, Some(ReportedLoad { running: 4, waiting: 2 }));
    assert_eq!(server.upstream(json!({ "kind": "openai" })).reported_load().await, None);
    let none = with_routes(&[]).await;
    assert_eq!(none.upstream(json!({ "kind": "vllm" })).reported_load().await, None);
}

#[tokio::test]
async fn health_is_asked_where_each_kind_tells_it() {
    let server = with_routes(&[("/health", || json!({})), ("/api/version", version)]).await;
    for (kind, is_well) in [("vllm", true), ("llama-server", true), ("ollama", true), ("openai", false)] {
        let upstream = server.upstream(json!({ "kind": kind }));
        assert_eq!(upstream.healthy().await.is_ok(), is_well, "{kind}");
    }
}
