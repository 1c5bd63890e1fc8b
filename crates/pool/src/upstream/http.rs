//! HTTP to one server: HTTP/1.1 with connections that are kept, or HTTP/2 where TLS negotiates it.
//!
//! ```text
//! send ─> an idle connection ── closed meanwhile? ─> a new one ─> Answer: head, then body frame by frame
//!                                                                 read to its end: connection goes back
//!                                                                 dropped before:  connection is closed, or stream reset
//! ```
//! Sending is tried a second time only where a kept connection turns out to be closed before a byte of an answer came. Everything that
//! is sent here may be sent twice: servers compute answers and change nothing.

mod answer;
mod connect;
mod pool;
mod tls;

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Version};

pub(super) use answer::Answer;
use connect::{Connection, Connector};
use pool::{Lease, Pool};

use crate::error::UpstreamError;
use crate::settings::UpstreamSettings;

/// What a request's body is: whole, and cheap to send once more.
pub(super) type Body = Full<Bytes>;

/// How this program names itself.
const AGENT: &str = concat!("ropeway/", env!("CARGO_PKG_VERSION"));

/// A request, apart from what is the same for all of an upstream's.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    /// From its first slash on, such as `/v1/models`.
    pub(super) path: String,
    /// JSON; empty for a `GET`.
    pub(super) body: Bytes,
    /// What the upstream's log calls it.
    pub(super) request_id: Option<HeaderValue>,
}

impl Call {
    pub(super) fn get(path: &str) -> Self {
        Self { method: Method::GET, path: path.into(), body: Bytes::new(), request_id: None }
    }

    pub(super) fn post(path: &str, body: Vec<u8>) -> Self {
        Self { method: Method::POST, path: path.into(), body: body.into(), request_id: None }
    }

    /// The same with an id; one that can't be a header's value is left out.
    pub(super) fn named(self, request_id: &str) -> Self {
        Self { request_id: HeaderValue::from_str(request_id).ok(), ..self }
    }
}

/// Speaks to one server.
#[derive(Debug)]
pub(super) struct Client {
    connector: Connector,
    authorization: Option<HeaderValue>,
    pool: Arc<Pool>,
}

/// Why there is no answer's head.
enum Unanswered {
    /// The connection was closed before anything came: a new one may do better.
    Stale(String),
    /// It failed otherwise.
    Broken(String),
}

impl Client {
    pub(super) fn new(settings: &UpstreamSettings) -> Result<Self, UpstreamError> {
        let bearer =
            settings.key.as_ref().map(|key| HeaderValue::from_str(&format!("Bearer {}", key.reveal())));
        let mut authorization = bearer
            .transpose()
            .map_err(|_| UpstreamError::Unauthorized { upstream: settings.name.clone(), status: 401 })?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        Ok(Self { connector: Connector::new(settings)?, authorization, pool: Arc::default() })
    }

    /// Closes connections that wait for work, and shares no others.
    pub(super) fn forget_connections(&self) {
        self.pool.clear();
    }

    /// Sends a request and waits for the head of its answer, whatever its status is. Has no time limit but the one for connecting.
    pub(super) async fn send(&self, call: &Call) -> Result<Answer, UpstreamError> {
        if let Some(kept) = self.pool.take().await {
            match self.exchange(kept, call).await {
                Ok(answer) => return Ok(answer),
                Err(Unanswered::Broken(why)) => return Err(self.broken_off(why)),
                Err(Unanswered::Stale(why)) => tracing::debug!("a kept connection was closed: {why}"),
            }
        }
        // Boxed: a TLS handshake's state is large, and most requests need none.
        let fresh = Box::pin(self.connector.connect()).await?;
        let answer = self.exchange(fresh, call).await;
        answer.map_err(|(Unanswered::Stale(why) | Unanswered::Broken(why))| self.broken_off(why))
    }

    async fn exchange(&self, connection: Connection, call: &Call) -> Result<Answer, Unanswered> {
        let (response, lease) = match connection {
            Connection::Http1(mut connection) => {
                let request = self.request(call, Version::HTTP_11);
                let sent = connection.sender.try_send_request(request).await;
                (sent.map_err(|failed| unanswered(&failed))?, Lease::alone(connection, &self.pool))
            }
            Connection::Http2(mut connection) => {
                // Counted before it is sent, so that others see the place taken.
                let lease = Lease::shared(&connection, &self.pool);
                let request = self.request(call, Version::HTTP_2);
                let sent = connection.sender.try_send_request(request).await;
                (sent.map_err(|failed| unanswered(&failed))?, lease)
            }
        };
        Ok(Answer::new(response, lease, self.connector.upstream.clone()))
    }

    fn request(&self, call: &Call, version: Version) -> Request<Body> {
        let url = &self.connector.url;
        let path = format!("{}{}", url.base, call.path);
        // HTTP/2 has no `Host`: scheme and authority come from the URI.
        let target =
            if version == Version::HTTP_2 { format!("https://{}{path}", url.authority()) } else { path };
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(target)
            .header(ACCEPT, "application/json, text/event-stream")
            .header(USER_AGENT, AGENT);
        if version == Version::HTTP_11 {
            request = request.header(HOST, url.authority());
        }
        if call.method == Method::POST {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let Some(id) = &call.request_id {
            request = request.header("x-request-id", id);
        }
        request
            .body(Full::new(call.body.clone()))
            .expect("settings hold a host and a path that a URI can have")
    }

    fn broken_off(&self, why: String) -> UpstreamError {
        UpstreamError::BrokenOff { upstream: self.connector.upstream.to_string(), why }
    }
}

fn unanswered(failed: &hyper::client::conn::TrySendError<Request<Body>>) -> Unanswered {
    let (unsent, error) = (failed.message().is_some(), failed.error());
    let why = with_causes(error);
    let closed = error.is_incomplete_message() || error.is_closed() || error.is_canceled() || is_reset(error);
    if unsent || closed { Unanswered::Stale(why) } else { Unanswered::Broken(why) }
}

/// Whether the system says that the other end is gone.
fn is_reset(error: &hyper::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
    let mut cause = std::error::Error::source(error);
    while let Some(one) = cause {
        if let Some(io) = one.downcast_ref::<std::io::Error>() {
            return matches!(io.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected);
        }
        cause = one.source();
    }
    false
}

/// An error and what is behind it: `error: cause: its cause`.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(one) = cause {
        text = format!("{text}: {one}");
        cause = one.source();
    }
    text
}
