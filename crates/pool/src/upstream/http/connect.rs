//! New connections: TCP without delay, TLS, and the version of HTTP that both ends speak.

use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use super::pool::{Http1, Http2};
use super::tls;
use crate::error::UpstreamError;
use crate::settings::{UpstreamSettings, Url};

/// Where to connect to, and how.
#[derive(Debug)]
pub(super) struct Connector {
    /// The upstream's name, for errors.
    pub(super) upstream: Arc<str>,
    pub(super) url: Url,
    tls: Option<Tls>,
    limit: Duration,
}

struct Tls {
    connector: TlsConnector,
    host: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("host", &self.host).finish_non_exhaustive()
    }
}

/// An open connection.
pub(super) enum Connection {
    Http1(Http1),
    Http2(Http2),
}

impl Connector {
    pub(super) fn new(settings: &UpstreamSettings) -> Result<Self, UpstreamError> {
        let tls = settings.url.is_tls.then(|| Tls::new(settings)).transpose()?;
        Ok(Self {
            upstream: settings.name.as_str().into(),
            url: settings.url.clone(),
            tls,
            limit: settings.timeouts.connect,
        })
    }

    /// Connects within the time for it.
    pub(super) async fn connect(&self) -> Result<Connection, UpstreamError> {
        let late = || format!("no connection within {} s", self.limit.as_secs_f64());
        timeout(self.limit, self.open()).await.unwrap_or_else(|_| Err(self.unreachable(late())))
    }

    async fn open(&self) -> Result<Connection, UpstreamError> {
        let address = (self.url.host.as_str(), self.url.port);
        let stream =
            TcpStream::connect(address).await.map_err(|error| self.unreachable(error.to_string()))?;
        // Without it, a request's last packet may wait for an acknowledgement of the one before.
        stream.set_nodelay(true).map_err(|error| self.unreachable(error.to_string()))?;
        let Some(tls) = &self.tls else { return self.http1(stream).await };
        let stream = tls.connector.connect(tls.host.clone(), stream).await;
        let stream = stream.map_err(|error| self.untrusted(error.to_string()))?;
        if speaks_http2(&stream) { self.http2(stream).await } else { self.http1(stream).await }
    }

    async fn http1<S: Stream>(&self, stream: S) -> Result<Connection, UpstreamError> {
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| self.no_http(&e))?;
        // How it ends is seen by whoever waits for an answer on it.
        let task = tokio::spawn(async move { drop(connection.await) });
        Ok(Connection::Http1(Http1::new(sender, &task)))
    }

    async fn http2<S: Stream>(&self, stream: S) -> Result<Connection, UpstreamError> {
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|error| self.no_http(&error))?;
        tokio::spawn(async move { drop(connection.await) });
        Ok(Connection::Http2(Http2 { sender, streams: Arc::default() }))
    }

    fn unreachable(&self, why: String) -> UpstreamError {
        UpstreamError::Unreachable { upstream: self.upstream.to_string(), why }
    }

    fn untrusted(&self, why: String) -> UpstreamError {
        UpstreamError::Tls { upstream: self.upstream.to_string(), why }
    }

    fn no_http(&self, error: &hyper::Error) -> UpstreamError {
        self.unreachable(super::with_causes(error))
    }
}

impl Tls {
    fn new(settings: &UpstreamSettings) -> Result<Self, UpstreamError> {
        let failed = |why: String| UpstreamError::Tls { upstream: settings.name.clone(), why };
        let config = tls::config(settings.tls_roots.as_deref()).map_err(failed)?;
        let host = ServerName::try_from(settings.url.host.clone());
        let host = host
            .map_err(|_| failed(format!("{} is no name that a certificate could have", settings.url.host)))?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), host })
    }
}

/// What HTTP is spoken over.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

fn speaks_http2(stream: &TlsStream<TcpStream>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(tls::HTTP2)
}
