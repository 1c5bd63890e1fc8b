//! Hostile requests: the server's own code, on an engine that computes nothing.
//!
//! Its time is simulated: wherever everything waits, the clock goes on to the next timeout. A connection that the server would
//! end after 20 silent seconds ends at once, and one that it would never end hangs the target.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use ropeway_engine::{Settings, spawn};
use ropeway_executor::Limits;
use ropeway_server::serve::Listening;
use ropeway_server::{App, Model, ModelFacts, Models, router};
use ropeway_testkit::MockExecutor;
use ropeway_text::ChatTemplate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tower::ServiceExt;

use crate::tokenizers::{llama, llama_tokenizer};

/// Where a typed request may go.
pub const PATHS: [&str; 13] = [
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

/// Sends a body to one of [`PATHS`], past the network. Whatever it is, the answer is not 500.
pub fn try_request(choice: u8, body: &[u8]) {
    let path = PATHS[usize::from(choice) % PATHS.len()];
    let server = server();
    server.runtime.block_on(async {
        let request = Request::post(path).body(Body::from(body.to_vec())).expect("a request");
        let response = router(Arc::clone(&server.app)).oneshot(request).await.expect("an answer");
        let status = response.status();
        let answer = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
        assert_ne!(status, StatusCode::INTERNAL_SERVER_ERROR, "{path}: {}", String::from_utf8_lossy(&answer));
    });
}

/// Sends these bytes over a connection and reads until the server ends it. Nothing of what it says is a 500.
pub fn try_connection(sent: &[u8]) {
    let server = server();
    let answer = server.runtime.block_on(async {
        let mut stream = TcpStream::connect(server.address).await.expect("a connection");
        let mut answer = Vec::new();
        let (mut reader, mut writer) = stream.split();
        // A server may end a connection before it has read everything.
        let _ = tokio::join!(writer.write_all(sent), reader.read_to_end(&mut answer));
        answer
    });
    let is_500 = |line: &[u8]| line.starts_with(b"HTTP/1.1 500 ");
    assert!(!answer.split(|byte| *byte == b'\n').any(is_500), "{}", String::from_utf8_lossy(&answer));
}

struct Server {
    app: Arc<App>,
    runtime: Runtime,
    address: SocketAddr,
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let app = Arc::new(App::new(models()));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let address = runtime.block_on(listen(Arc::clone(&app)));
        Server { app, runtime, address }
    })
}

/// Serves for as long as the runtime runs.
async fn listen(app: Arc<App>) -> SocketAddr {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let listening = Listening::bind(&[any_port]).await.expect("a port");
    let address = listening.addresses().expect("an address")[0];
    tokio::spawn(listening.serve(app, Duration::ZERO, std::future::pending()));
    address
}

fn models() -> Models {
    let tokenizer = llama_tokenizer();
    let template = ChatTemplate::from_checkpoint(&llama()).expect("readable").expect("a template");
    let vocab = tokenizer.vocab_size();
    let limits = Limits { context: CONTEXT, vocab, ..Limits::EXAMPLE };
    let (engine, _) = spawn(Box::new(MockExecutor::new(limits)), &Settings::default());
    let models = Models::default();
    models.add(Arc::new(Model::new("m".into(), tokenizer, template, ModelFacts::default(), engine)));
    models
}
