//! Embedding models of another server: all APIs answer for them as for local ones, also for models that come while serving.

use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::http::Request;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use ropeway_embed::TooLong;
use ropeway_generation::RequestError;
use ropeway_openai::texts::TextInput;
use ropeway_server::embedding::EmbeddingModel;
use ropeway_server::embedding::remote::{
    EmbedderFacts, RemoteEmbed, RemoteEmbedder, RemoteRank, RemoteScores, RemoteVectors,
};
use ropeway_server::{App, ModelFacts, Models, router};
use serde_json::{Value, json};
use tower::ServiceExt;

/// Vectors that begin with a text's length; documents score by theirs.
#[derive(Default)]
struct Lengths {
    asked: Mutex<Vec<RemoteEmbed>>,
}

impl RemoteEmbedder for Lengths {
    fn embed(&self, ask: RemoteEmbed) -> BoxFuture<'static, Result<RemoteVectors, RequestError>> {
        if ask.texts.iter().any(|text| text.bytes() == 0) {
            return ready(Err(RequestError::invalid("nothing to embed").at("input"))).boxed();
        }
        let vectors = ask.texts.iter().map(|text| vec![text.bytes() as f32, 0.0, 3.0]).collect();
        self.asked.lock().unwrap().push(ask);
        ready(Ok(RemoteVectors { vectors, tokens: 7, upstream: Some("gpu1".into()) })).boxed()
    }

    fn rank(&self, ask: RemoteRank) -> BoxFuture<'static, Result<RemoteScores, RequestError>> {
        let scores = ask.documents.iter().map(|document| document.len() as f32 / 8.0).collect();
        ready(Ok(RemoteScores { scores, tokens: 9, upstream: None })).boxed()
    }

    fn facts(&self) -> EmbedderFacts {
        EmbedderFacts { max_tokens: Some(512), dimensions: Some(3), can_score: true }
    }
}

fn app() -> (Arc<App>, Arc<Lengths>) {
    let app = Arc::new(App::new(Models::default()));
    let lengths = Arc::new(Lengths::default());
    let remote = Arc::clone(&lengths) as Arc<dyn RemoteEmbedder>;
    let facts = ModelFacts { family: "bert".into(), ..ModelFacts::default() };
    // It comes while the app is served already.
    app.embeddings.add(EmbeddingModel::of_remote("far-embed".into(), remote, facts));
    (app, lengths)
}

async fn ask(app: &Arc<App>, path: &str, body: Value) -> (u16, Value) {
    let request = Request::post(path).body(Body::from(body.to_string())).unwrap();
    let response = router(Arc::clone(app)).oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap())
}

#[tokio::test]
async fn openais_embeddings_come_with_usage_in_both_encodings_and_shortened() {
    let (app, lengths) = app();
    let (status, answer) =
        ask(&app, "/v1/embeddings", json!({"model": "far-embed", "input": ["four", "x"]})).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["data"][0]["embedding"], json!([4.0, 0.0, 3.0]));
    assert_eq!(answer["usage"]["prompt_tokens"], 7);
    let short = json!({"model": "far-embed", "input": "four", "dimensions": 2, "encoding_format": "base64"});
    let (_, answer) = ask(&app, "/v1/embeddings", short).await;
    assert_eq!(answer["data"][0]["embedding"], "AACAPwAAAAA=", "1 and 0");
    let long = json!({"model": "far-embed", "input": "four", "dimensions": 4});
    let (status, answer) = ask(&app, "/v1/embeddings", long).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("dimensions")));
    let (status, _) = ask(&app, "/v1/embeddings", json!({"model": "far-embed", "input": [""]})).await;
    assert_eq!(status, 400);
    assert_eq!(lengths.asked.lock().unwrap()[0].texts[1], TextInput::Text("x".into()));
    assert_eq!(lengths.asked.lock().unwrap()[0].too_long, TooLong::Refuse);
}

#[tokio::test]
async fn ollamas_vectors_have_length_one_and_texts_may_be_cut() {
    let (app, lengths) = app();
    let (status, answer) = ask(&app, "/api/embed", json!({"model": "far-embed", "input": "four"})).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["embeddings"][0][0].as_f64().map(|x| (x * 10.0).round()), Some(8.0));
    assert_eq!(answer["prompt_eval_count"], 7);
    assert_eq!(lengths.asked.lock().unwrap()[0].too_long, TooLong::Truncate);
    let (_, shown) = ask(&app, "/api/show", json!({"model": "far-embed"})).await;
    assert_eq!(shown["model_info"]["bert.embedding_length"], 3);
    assert_eq!(shown["capabilities"], json!(["embedding"]));
}

#[tokio::test]
async fn documents_are_ranked_over_there() {
    let (app, _) = app();
    let documents = json!(["a", "four", "to"]);
    let (status, answer) = ask(
        &app,
        "/v1/rerank",
        json!({"model": "far-embed", "query": "q", "documents": documents, "top_n": 2}),
    )
    .await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        answer["results"],
        json!([{"index": 1, "relevance_score": 0.5}, {"index": 2, "relevance_score": 0.25}])
    );
    assert_eq!(answer["usage"]["total_tokens"], 9);
}

#[tokio::test]
async fn a_model_that_goes_is_not_served_any_more() {
    let (app, _) = app();
    app.embeddings.remove("far-embed");
    let (status, _) = ask(&app, "/v1/embeddings", json!({"model": "far-embed", "input": "x"})).await;
    assert_eq!(status, 404);
}
