//! The input is a byte that chooses a path, and a body: it goes through the server's router, tokenizer, template and engine to an
//! executor that computes nothing. Whatever it is, the answer is not 500.
#![no_main]

use std::path::Path;
use std::sync::{Arc, OnceLock};

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use ropeway_engine::{Settings, spawn};
use ropeway_executor::Limits;
use ropeway_server::{App, Model, ModelFacts, Models, router};
use ropeway_testkit::MockExecutor;
use ropeway_text::{ChatTemplate, Tokenizer};
use ropeway_weights::Checkpoint;
use tokio::runtime::Runtime;
use tower::ServiceExt;

const PATHS: [&str; 13] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/tokenize",
    "/detokenize",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/api/chat",
    "/api/generate",
    "/api/show",
    "/generate",
    "/generate/batch",
    "/generate/stream",
];

/// Tokens of prompt and answer: few, so that an answer is quick.
const CONTEXT: usize = 128;

/// The fixture whose tokenizer and template are used.
const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/llama");

struct Server {
    app: Arc<App>,
    runtime: Runtime,
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let checkpoint = Checkpoint::open(Path::new(FIXTURE)).expect("the fixture");
        let tokenizer = Tokenizer::from_checkpoint(&checkpoint).expect("a tokenizer");
        let template = ChatTemplate::from_checkpoint(&checkpoint).expect("readable").expect("a template");
        let vocab = tokenizer.vocab_size();
        let limits = Limits {
            block_tokens: 16,
            blocks: 256,
            context: CONTEXT,
            step_tokens: 128,
            step_rows: 32,
            vocab,
            ..Limits::EXAMPLE
        };
        let (engine, _) = spawn(Box::new(MockExecutor::new(limits)), &Settings::default());
        let models = Models::default();
        models.add(Arc::new(Model::new("m".into(), tokenizer, template, ModelFacts::default(), engine)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        Server { app: Arc::new(App::new(models)), runtime }
    })
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&choice, body)) = input.split_first() else { return };
    let path = PATHS[usize::from(choice) % PATHS.len()];
    let server = server();
    server.runtime.block_on(async {
        let request = Request::post(path).body(Body::from(body.to_vec())).expect("a request");
        let response = router(Arc::clone(&server.app)).oneshot(request).await.expect("an answer");
        let status = response.status();
        let answer = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
        assert_ne!(status, StatusCode::INTERNAL_SERVER_ERROR, "{path}: {}", String::from_utf8_lossy(&answer));
    });
});
