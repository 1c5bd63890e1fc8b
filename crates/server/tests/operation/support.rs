//! An app on an executor that computes nothing and waits when told to.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::http::{Request, Response};
use ropeway_engine::{Settings, spawn};
use ropeway_executor::{Batch, Executor, ExecutorError, Guides, Limits, StepOutput};
use ropeway_server::{App, Model, ModelFacts, Models, router};
use ropeway_testkit::{Fault, MockExecutor};
use ropeway_text::{ChatTemplate, Tokenizer};
use ropeway_weights::Checkpoint;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::default_models;

/// Tokens that prompt and answer have room for.
pub const CONTEXT: usize = 512;

/// Steps wait here while a test holds the gate.
#[derive(Clone, Default)]
pub struct Gate(Arc<Mutex<Option<Receiver<()>>>>);

/// Opens the gate when dropped.
pub struct Held(#[allow(dead_code, reason = "its end is the signal")] Sender<()>);

impl Gate {
    /// No step begins until the result is dropped.
    pub fn hold(&self) -> Held {
        let (sender, receiver) = channel();
        *self.0.lock().expect("the gate") = Some(receiver);
        Held(sender)
    }

    /// Whether a step came to the gate since it was held.
    pub fn is_held_up(&self) -> bool {
        self.0.lock().expect("the gate").is_none()
    }

    fn pass(&self) {
        let closed = self.0.lock().expect("the gate").take();
        if let Some(closed) = closed {
            let _ = closed.recv();
        }
    }
}

struct Gated {
    inner: MockExecutor,
    gate: Gate,
}

impl Executor for Gated {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn launch(&mut self, batch: &Batch, guides: &dyn Guides) -> Result<(), ExecutorError> {
        self.gate.pass();
        self.inner.launch(batch, guides)
    }

    fn collect(&mut self, guides: &dyn Guides, output: &mut StepOutput) -> Result<(), ExecutorError> {
        self.inner.collect(guides, output)
    }

    fn restart(&mut self) -> Result<(), ExecutorError> {
        self.inner.restart()
    }
}

/// A model on a gated engine that lets so many requests wait; `None` (and a reason on the screen) without a tokenizer.
pub fn model(name: &str, queue: usize) -> Option<(Arc<Model>, Gate)> {
    faulty_model(name, queue, vec![])
}

/// The same on an executor that goes wrong in these ways.
pub fn faulty_model(name: &str, queue: usize, faults: Vec<Fault>) -> Option<(Arc<Model>, Gate)> {
    let checkpoint = Checkpoint::open(&default_models::smollm2()?).expect("the default model");
    let tokenizer = Tokenizer::from_checkpoint(&checkpoint).expect("a tokenizer");
    let template = ChatTemplate::from_checkpoint(&checkpoint).expect("readable").expect("a template");
    let limits = Limits { context: CONTEXT, vocab: tokenizer.vocab_size(), ..Limits::EXAMPLE };
    let gate = Gate::default();
    let executor = Gated { inner: MockExecutor::new(limits).with_faults(faults), gate: gate.clone() };
    let (handle, _) = spawn(Box::new(executor), &Settings { queue, ..Settings::default() });
    let model = Model::new(name.into(), tokenizer, template, ModelFacts::default(), handle);
    Some((Arc::new(model), gate))
}

/// Models on a gated engine that lets so many requests wait.
pub fn models(queue: usize) -> Option<(Models, Gate)> {
    let (model, gate) = model("smollm2:135m", queue)?;
    let models = Models::default();
    models.add(model);
    Some((models, gate))
}

/// An app with these changes.
pub fn app(change: impl FnOnce(&mut App)) -> Option<Arc<App>> {
    let (models, _) = models(64)?;
    let mut app = App::new(models);
    change(&mut app);
    Some(Arc::new(app))
}

/// A question of a few tokens.
pub fn question(extra: Value) -> Value {
    let mut body = json!({
        "model": "smollm2", "max_tokens": 4, "ignore_eos": true,
        "messages": [{"role": "user", "content": "Hello"}],
    });
    let (Value::Object(fields), Value::Object(extra)) = (&mut body, extra) else { unreachable!() };
    fields.extend(extra);
    body
}

/// `POST /v1/chat/completions` with these headers.
pub fn chat(headers: &[(&str, &str)], body: &Value) -> Request<Body> {
    post("/v1/chat/completions", headers, body)
}

/// A request with these headers.
pub fn post(path: &str, headers: &[(&str, &str)], body: &Value) -> Request<Body> {
    let request =
        headers.iter().fold(Request::post(path), |request, (name, value)| request.header(*name, *value));
    request.body(Body::from(body.to_string())).expect("a request")
}

/// A question without a body.
pub fn get(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let request =
        headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    request.body(Body::empty()).expect("a request")
}

/// The answer.
pub async fn send(app: &Arc<App>, request: Request<Body>) -> Response<Body> {
    router(Arc::clone(app)).oneshot(request).await.expect("an answer")
}

/// Its text.
pub async fn text(response: Response<Body>) -> String {
    let bytes = to_bytes(response.into_body(), 16 << 20).await.expect("a body");
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Status, `Retry-After` and text of the answer.
pub async fn outcome(app: &Arc<App>, request: Request<Body>) -> (u16, Option<String>, String) {
    let response = send(app, request).await;
    let retry = response.headers().get("retry-after").map(|value| value.to_str().expect("text").to_owned());
    (response.status().as_u16(), retry, text(response).await)
}

/// Waits for something that will happen soon.
pub async fn until(happened: impl Fn() -> bool) {
    for _ in 0..1000 {
        if happened() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("it did not happen");
}
