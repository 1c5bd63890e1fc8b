//! The default model behind the router, without a network.

#[path = "../../../../tests/default_models.rs"]
mod default_models;

use std::sync::{Arc, OnceLock};

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use ropeway_cpu::{CpuExecutor, CpuOptions};
use ropeway_engine::{Settings, spawn};
use ropeway_server::{Alias, App, Model, ModelFacts, Models, router};
use ropeway_text::{ChatTemplate, Tokenizer};
use ropeway_weights::Checkpoint;
use serde_json::Value;
use tower::ServiceExt;

/// The app, once for all tests; `None` (and a reason on the screen) without the model.
pub fn app() -> Option<Arc<App>> {
    static APP: OnceLock<Option<Arc<App>>> = OnceLock::new();
    APP.get_or_init(|| load(&Settings::default())).clone()
}

/// The app on an engine with these settings.
pub fn load(settings: &Settings) -> Option<Arc<App>> {
    let checkpoint = Checkpoint::open(&default_models::smollm2()?).expect("the default model");
    let options = CpuOptions { context: Some(512), kv_tokens: Some(4096), ..CpuOptions::default() };
    let executor = CpuExecutor::load(&checkpoint, &options, &mut |_, _| {}).expect("it loads");
    let (handle, _) = spawn(Box::new(executor), settings);
    let tokenizer = Tokenizer::from_checkpoint(&checkpoint).expect("a tokenizer");
    let template = ChatTemplate::from_checkpoint(&checkpoint).expect("readable").expect("a template");
    let models = Models::new(vec!["claude-*=smollm2:135m".parse::<Alias>().expect("an alias")]);
    let model = Model::new("smollm2:135m".into(), tokenizer, template, ModelFacts::default(), handle);
    models.add(Arc::new(model));
    Some(Arc::new(App::new(models)))
}

/// Status and body of the answer to a request.
pub async fn send(app: &Arc<App>, path: &str, body: &Value) -> (StatusCode, String) {
    let request = Request::post(path).body(Body::from(body.to_string())).expect("a request");
    let response = router(Arc::clone(app)).oneshot(request).await.expect("an answer");
    let status = response.status();
    let bytes = to_bytes(response.into_body(), 1 << 20).await.expect("a body");
    (status, String::from_utf8(bytes.to_vec()).expect("text"))
}

/// The answer to a request that is answered.
#[allow(dead_code, reason = "some tests look at the status themselves")]
pub async fn ask(app: &Arc<App>, path: &str, body: &Value) -> Value {
    let (status, text) = send(app, path, body).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str(&text).expect("JSON")
}
