//! Embeddings on the default embedding model, and ranking on a tiny cross-encoder, through the router.

#[path = "../../../tests/default_models.rs"]
mod default_models;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use axum::body::{Body, to_bytes};
use axum::http::Request;
use ropeway_embed::{Embedder, EmbedderOptions};
use ropeway_server::embedding::{EmbeddingModel, EmbeddingModels, Ready};
use ropeway_server::{Alias, App, ModelFacts, Models, router};
use ropeway_weights::Checkpoint;
use serde_json::{Value, json};
use tower::ServiceExt;

/// A model that is loaded when first asked for.
fn lazy(name: &str, path: PathBuf) -> EmbeddingModel {
    let load = move || {
        let checkpoint = Checkpoint::open(&path).map_err(|error| error.to_string())?;
        let embedder = Embedder::load(&checkpoint, &EmbedderOptions::default(), &mut |_, _| {});
        let embedder = embedder.map(Arc::new).map_err(|error| error.to_string())?;
        Ok(Ready { embedder, facts: ModelFacts { family: "bert".into(), ..ModelFacts::default() } })
    };
    EmbeddingModel::new(name.into(), Arc::new(load))
}

/// The app, once for all tests; `None` (and a reason on the screen) without the model.
fn app() -> Option<Arc<App>> {
    static APP: OnceLock<Option<Arc<App>>> = OnceLock::new();
    APP.get_or_init(|| {
        let minilm = default_models::minilm()?;
        let alias = "text-embedding-*=all-minilm:l6-v2".parse::<Alias>().expect("an alias");
        let models = vec![lazy("all-minilm:l6-v2", minilm), lazy("broken", "no-such-folder".into())];
        let embeddings = EmbeddingModels::new(models);
        Some(Arc::new(App { embeddings, ..App::new(Models::new(vec![alias])) }))
    })
    .clone()
}

async fn ask(app: &Arc<App>, path: &str, body: Value) -> (u16, Value) {
    let request = Request::post(path).body(Body::from(body.to_string())).expect("a request");
    let response = router(Arc::clone(app)).oneshot(request).await.expect("an answer");
    let status = response.status().as_u16();
    let bytes = to_bytes(response.into_body(), 1 << 24).await.expect("a body");
    (status, serde_json::from_slice(&bytes).expect("JSON"))
}

fn vector(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect()
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[tokio::test]
async fn every_form_of_input_gives_vectors_in_order_with_true_usage() {
    let Some(app) = app() else { return };
    let model = "text-embedding-3-small";
    let (status, two) =
        ask(&app, "/v1/embeddings", json!({"model": model, "input": ["a cat", "a dog"]})).await;
    assert_eq!(status, 200, "{two}");
    assert_eq!((&two["object"], &two["model"]), (&json!("list"), &json!("all-minilm:l6-v2")));
    assert_eq!((&two["data"][1]["index"], &two["data"][1]["object"]), (&json!(1), &json!("embedding")));
    let dog = vector(&two["data"][1]["embedding"]);
    assert_eq!(dog.len(), 384);
    assert!((length(&dog) - 1.0).abs() < 1e-5);
    assert_eq!(two["usage"], json!({"prompt_tokens": 8, "total_tokens": 8}), "[CLS] a dog [SEP], twice");

    let (_, one) = ask(&app, "/v1/embeddings", json!({"model": "all-minilm", "input": "a dog"})).await;
    assert_eq!(vector(&one["data"][0]["embedding"]), dog, "the same bits in any company");
    // [CLS] a dog [SEP]
    let ids = json!([101, 1037, 3899, 102]);
    let (_, tokens) = ask(&app, "/v1/embeddings", json!({"input": ids})).await;
    assert_eq!(vector(&tokens["data"][0]["embedding"]), dog);
    let (_, lists) = ask(&app, "/v1/embeddings", json!({"input": [ids, ids]})).await;
    assert_eq!(vector(&lists["data"][1]["embedding"]), dog);
}

#[tokio::test]
async fn numbers_travel_as_floats_or_as_bytes() {
    let Some(app) = app() else { return };
    let body = |format: &str| json!({"input": "hello", "encoding_format": format, "dimensions": 2});
    let (_, floats) = ask(&app, "/v1/embeddings", body("float")).await;
    let floats = vector(&floats["data"][0]["embedding"]);
    assert_eq!(floats.len(), 2);
    assert!((length(&floats) - 1.0).abs() < 1e-5, "shortened and brought to length 1 again");
    let (_, bytes) = ask(&app, "/v1/embeddings", body("base64")).await;
    let text = bytes["data"][0]["embedding"].as_str().expect("text").to_owned();
    assert_eq!((text.len(), text.ends_with('=')), (12, true), "eight bytes in twelve letters");
    assert_eq!(ask(&app, "/v1/embeddings", body("hex")).await.0, 400);
}

#[tokio::test]
async fn a_text_that_is_too_long_is_an_error_or_cut_as_each_api_has_it() {
    let Some(app) = app() else { return };
    let long = "word ".repeat(600);
    let (status, error) = ask(&app, "/v1/embeddings", json!({"input": ["fine", long]})).await;
    assert_eq!((status, &error["error"]["code"]), (400, &json!("context_length_exceeded")));
    assert!(error["error"]["message"].as_str().expect("text").starts_with("input[1]"), "{error}");
    let body = |truncate: bool| json!({"model": "all-minilm", "input": long, "truncate": truncate});
    assert_eq!(ask(&app, "/api/embed", body(false)).await.0, 400);
    let (status, cut) = ask(&app, "/api/embed", body(true)).await;
    assert_eq!((status, &cut["prompt_eval_count"]), (200, &json!(256)));
}

#[tokio::test]
async fn ollamas_two_routes_give_what_openais_gives() {
    let Some(app) = app() else { return };
    let (_, openai) = ask(&app, "/v1/embeddings", json!({"input": "a cat"})).await;
    let cat = vector(&openai["data"][0]["embedding"]);
    let (status, today) =
        ask(&app, "/api/embed", json!({"model": "all-minilm", "input": ["a cat", "x"]})).await;
    assert_eq!((status, today["embeddings"].as_array().map(Vec::len)), (200, Some(2)));
    let same = |other: Vec<f64>| cat.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(same(vector(&today["embeddings"][0])));
    assert!(today["total_duration"].as_u64() >= today["load_duration"].as_u64());
    let (_, old) = ask(&app, "/api/embeddings", json!({"model": "all-minilm", "prompt": "a cat"})).await;
    assert!(same(vector(&old["embedding"])));
    let (status, nothing) = ask(&app, "/api/embed", json!({"model": "all-minilm"})).await;
    assert_eq!((status, &nothing["embeddings"]), (200, &json!([])), "no input only loads it");
}

#[tokio::test]
async fn one_bad_request_is_no_concern_of_its_neighbours() {
    let Some(app) = app() else { return };
    let good = |i: usize| ask(&app, "/v1/embeddings", json!({"input": format!("text {i}")}));
    let bad = ask(&app, "/v1/embeddings", json!({"input": [[101, 999_999_999]]}));
    let (answers, (status, error)) = tokio::join!(futures_util::future::join_all((0..16).map(good)), bad);
    assert_eq!((status, &error["error"]["param"]), (400, &json!("input")));
    assert!(answers.iter().all(|(status, _)| *status == 200));
    for input in [json!([]), json!(7), json!([1.5]), json!([{}]), json!([[]])] {
        let (status, error) = ask(&app, "/v1/embeddings", json!({"input": input})).await;
        assert_eq!(status, 400, "{input}: {error}");
    }
    for dimensions in [0, 385] {
        assert_eq!(ask(&app, "/v1/embeddings", json!({"input": "x", "dimensions": dimensions})).await.0, 400);
    }
}

#[tokio::test]
async fn unknown_and_broken_models_are_told_in_each_familys_shape() {
    let Some(app) = app() else { return };
    let (status, error) = ask(&app, "/v1/embeddings", json!({"model": "nope", "input": "x"})).await;
    assert_eq!((status, &error["error"]["code"]), (404, &json!("model_not_found")));
    let (status, error) = ask(&app, "/api/embed", json!({"model": "nope", "input": "x"})).await;
    assert_eq!(status, 404);
    assert!(error["error"].as_str().expect("text").contains("all-minilm:l6-v2"), "{error}");
    assert_eq!(ask(&app, "/v1/embeddings", json!({"model": "broken", "input": "x"})).await.0, 500);
    let (_, shown) = ask(&app, "/api/show", json!({"model": "all-minilm"})).await;
    assert_eq!(shown["capabilities"], json!(["embedding"]));
    assert_eq!(shown["model_info"]["bert.embedding_length"], 384);
    let rerank = json!({"query": "x", "documents": ["y"]});
    let (status, error) = ask(&app, "/v1/rerank", rerank).await;
    assert_eq!(status, 400);
    assert!(error["error"]["message"].as_str().expect("text").contains("cross-encoder"), "{error}");
}

#[tokio::test]
async fn documents_come_back_in_the_order_in_which_they_fit() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/encoders/cross-bert");
    let embeddings = EmbeddingModels::new(vec![lazy("ranker", folder)]);
    let app = Arc::new(App { embeddings, ..App::new(Models::default()) });
    let documents = json!(["the cat", {"text": "a dog and the house"}, "house"]);
    let body = json!({"query": "cat", "documents": documents, "return_documents": true});
    let (status, all) = ask(&app, "/v1/rerank", body.clone()).await;
    assert_eq!(status, 200, "{all}");
    let score = |result: &Value| result["relevance_score"].as_f64().expect("a number");
    let results = all["results"].as_array().expect("a list");
    assert_eq!(results.len(), 3);
    assert!(results.is_sorted_by(|a, b| score(a) >= score(b)), "{all}");
    assert!(results.iter().all(|result| (0.0..=1.0).contains(&score(result))));
    let second = results.iter().find(|result| result["index"] == 1).expect("there");
    assert_eq!(second["document"]["text"], "a dog and the house");

    let mut top = body;
    top["top_n"] = json!(1);
    let (_, top) = ask(&app, "/v1/rerank", top).await;
    assert_eq!(top["results"], json!([results[0]]));
    assert_eq!(ask(&app, "/v1/rerank", json!({"query": "x", "documents": []})).await.0, 400);
    assert_eq!(ask(&app, "/v1/rerank", json!({"documents": ["x"]})).await.0, 400);
}
