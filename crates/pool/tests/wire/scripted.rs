//! A server that answers by a script: HTTP/1.1 over TCP or TLS, down to how its connections end.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use ropeway_executor::{Sampled, SamplingParams};
use ropeway_pool::error::UpstreamError;
use ropeway_pool::settings::UpstreamArg;
use ropeway_pool::upstream::{TokenAsk, TokenEvent, TokenStream, Upstream};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    pub path: String,
    /// Head in lower case.
    pub head: String,
    pub body: Value,
}

/// How a request is answered.
#[derive(Clone, Debug)]
pub enum Reply {
    /// With this status and body.
    Json(u16, Value),
    /// With this status, these header lines and this text.
    Text(u16, &'static str, String),
    /// With these events, each a packet of its own, and then an end.
    Events(Vec<String>, Then),
    /// Not at all: the connection is closed.
    Nothing,
    /// Not at all, until the client goes away.
    Silence,
}

/// What follows the last event.
#[derive(Clone, Copy, Debug)]
pub enum Then {
    /// The proper end of the answer.
    End,
    /// The connection is closed in the middle of the answer.
    Cut,
    /// The connection is reset.
    Reset,
    /// Nothing, until the client goes away.
    Stall,
}

/// An answer with status 200.
pub fn json(body: Value) -> Reply {
    Reply::Json(200, body)
}

/// Events in JSON, followed by `[DONE]`.
pub fn events(events: &[Value]) -> Reply {
    let lines = events.iter().map(ToString::to_string).chain(["[DONE]".to_owned()]);
    Reply::Events(lines.collect(), Then::End)
}

/// Events in JSON, and what follows them.
pub fn events_then(events: &[Value], then: Then) -> Reply {
    Reply::Events(events.iter().map(ToString::to_string).collect(), then)
}

type Script = dyn Fn(&Seen) -> Reply + Send + Sync;

/// A running server. Ends with the test's runtime.
pub struct Server {
    pub address: SocketAddr,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    pub connections: Arc<AtomicUsize>,
    /// Connections that the client closed.
    left: watch::Receiver<usize>,
    arrived: watch::Receiver<usize>,
}

#[derive(Clone)]
struct Shared {
    script: Arc<Script>,
    seen: Arc<Mutex<Vec<Seen>>>,
    left: Arc<watch::Sender<usize>>,
    arrived: Arc<watch::Sender<usize>>,
}

impl Server {
    pub async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(script, |stream| async { Some(stream) }).await
    }

    /// The same behind something that makes a stream of a connection, such as TLS.
    pub async fn start_with<S, F>(
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
        wrap: impl Fn(TcpStream) -> F + Send + Sync + 'static,
    ) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + Lingers + 'static,
        F: Future<Output = Option<S>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let ((leave, left), (arrive, arrived)) = (watch::channel(0), watch::channel(0));
        let connections = Arc::new(AtomicUsize::new(0));
        let (leave, arrive) = (Arc::new(leave), Arc::new(arrive));
        let shared = Shared { script: Arc::new(script), seen: Arc::default(), left: leave, arrived: arrive };
        let (seen, counted) = (Arc::clone(&shared.seen), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let (shared, wrapped) = (shared.clone(), wrap(stream));
                tokio::spawn(async move {
                    if let Some(stream) = wrapped.await {
                        serve(stream, &shared).await;
                    }
                });
            }
        });
        Self { address, seen, connections, left, arrived }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A client of it; `more` are further fields of its table.
    pub fn upstream(&self, more: Value) -> Upstream {
        upstream(&self.url(), more)
    }

    /// The requests to a path, in the order they came.
    pub fn asked(&self, path: &str) -> Vec<Seen> {
        self.seen.lock().expect("seen").iter().filter(|seen| seen.path == path).cloned().collect()
    }

    /// Waits until so many requests have come.
    pub async fn wait_arrived(&mut self, count: usize) {
        self.arrived.wait_for(|arrived| *arrived >= count).await.expect("the server runs");
    }

    /// Waits until so many connections were closed by the client.
    pub async fn wait_left(&mut self, count: usize) {
        self.left.wait_for(|left| *left >= count).await.expect("the server runs");
    }
}

/// An object with further fields.
pub fn with(mut object: Value, more: Value) -> Value {
    if let (Some(fields), Value::Object(more)) = (object.as_object_mut(), more) {
        fields.extend(more);
    }
    object
}

/// A client of a server at this address, called `gpu`.
pub fn upstream(url: &str, more: Value) -> Upstream {
    let table = with(serde_json::json!({ "url": url, "name": "gpu" }), more);
    let settings = table.to_string().parse::<UpstreamArg>().and_then(UpstreamArg::resolve).expect("settings");
    Upstream::new(settings).expect("an upstream")
}

/// Streams that can be made to end with a reset.
pub trait Lingers {
    fn reset_at_close(&self);
}

impl Lingers for TcpStream {
    fn reset_at_close(&self) {
        self.set_zero_linger().expect("linger");
    }
}

impl<S: Lingers> Lingers for tokio_rustls::server::TlsStream<S> {
    fn reset_at_close(&self) {
        self.get_ref().0.reset_at_close();
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Lingers>(mut stream: S, shared: &Shared) {
    let mut buffer = Vec::new();
    loop {
        let Some(request) = read_request(&mut stream, &mut buffer).await else {
            shared.left.send_modify(|left| *left += 1);
            return;
        };
        let reply = (shared.script)(&request);
        shared.seen.lock().expect("seen").push(request);
        shared.arrived.send_modify(|arrived| *arrived += 1);
        if !answer(&mut stream, reply, shared).await {
            return;
        }
    }
}

/// Answers; whether the connection stays open.
async fn answer<S: AsyncRead + AsyncWrite + Unpin + Lingers>(
    stream: &mut S,
    reply: Reply,
    shared: &Shared,
) -> bool {
    match reply {
        Reply::Nothing => false,
        Reply::Silence => finish(stream, Then::Stall, shared).await,
        Reply::Json(status, body) => {
            whole(stream, status, "content-type: application/json\r\n", &body.to_string()).await
        }
        Reply::Text(status, headers, body) => whole(stream, status, headers, &body).await,
        Reply::Events(lines, then) => {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            if stream.write_all(head.as_bytes()).await.is_err() {
                return false;
            }
            for line in lines {
                let event = format!("data: {line}\n\n");
                let chunk = format!("{:x}\r\n{event}\r\n", event.len());
                if stream.write_all(chunk.as_bytes()).await.is_err() {
                    return false;
                }
                let _ = stream.flush().await;
            }
            finish(stream, then, shared).await
        }
    }
}

async fn finish<S: AsyncRead + AsyncWrite + Unpin + Lingers>(
    stream: &mut S,
    then: Then,
    shared: &Shared,
) -> bool {
    match then {
        Then::End => stream.write_all(b"0\r\n\r\n").await.is_ok(),
        Then::Cut => false,
        Then::Reset => {
            stream.reset_at_close();
            false
        }
        Then::Stall => {
            let _ = stream.read(&mut [0; 16]).await;
            shared.left.send_modify(|left| *left += 1);
            false
        }
    }
}

async fn whole<S: AsyncWrite + Unpin>(stream: &mut S, status: u16, headers: &str, body: &str) -> bool {
    let head = format!("HTTP/1.1 {status} Said\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(head.as_bytes()).await.is_ok() && stream.flush().await.is_ok()
}

/// The next request; `None` if the client closes.
async fn read_request<S: AsyncRead + Unpin>(stream: &mut S, buffer: &mut Vec<u8>) -> Option<Seen> {
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let whole = end + 4 + length.map_or(0, |length| length.parse().expect("a length"));
            if buffer.len() >= whole {
                let path = String::from_utf8_lossy(buffer.split(|byte| *byte == b' ').nth(1)?).into_owned();
                let body = serde_json::from_slice(&buffer[end + 4..whole]).unwrap_or_default();
                buffer.drain(..whole);
                return Some(Seen { path, head, body });
            }
        }
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        buffer.extend_from_slice(&piece[..read]);
    }
}

/// A greedy request of three prompt tokens.
pub fn ask(params: &SamplingParams) -> TokenAsk<'_> {
    TokenAsk { ends: &[2], request_id: "req-1", ..TokenAsk::greedy("m", &[5, 6, 7], 8, params) }
}

/// All events of a sequence, and the error that ended it, if one did.
pub async fn read(mut stream: TokenStream) -> (Vec<TokenEvent>, Option<UpstreamError>) {
    let mut all = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => all.push(event),
            Err(error) => return (all, Some(error)),
        }
    }
    (all, None)
}

/// Asks and reads everything.
pub async fn answered(upstream: &Upstream, ask: &TokenAsk<'_>) -> Vec<TokenEvent> {
    let (events, error) = read(upstream.generate(ask).await.expect("an answer")).await;
    assert_eq!(error, None);
    events
}

/// Tokens without log-probabilities.
pub fn tokens(ids: &[u32]) -> TokenEvent {
    TokenEvent::Tokens(ids.iter().map(|&token| Sampled { token, ..Sampled::default() }).collect())
}
