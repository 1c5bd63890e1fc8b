//! TLS: whom a client trusts, and HTTP/2 where it is offered.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::Full;
use http_body_util::channel::Channel;
use hyper::service::service_fn;
use hyper::{Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::CertifiedKey;
use ropeway_pool::error::UpstreamError;
use serde_json::json;
use tempfile::NamedTempFile;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::scripted::{Server, json, upstream};

/// A certificate for `localhost`, as a server has it and as a file of roots.
struct Certificate {
    acceptor: TlsAcceptor,
    roots: NamedTempFile,
}

fn certificate(protocols: &[&str]) -> Certificate {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".into()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    let mut config = config.with_single_cert(vec![cert.der().clone()], key).expect("a pair");
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let roots = NamedTempFile::new().expect("a file");
    std::fs::write(roots.path(), cert.pem()).expect("written");
    Certificate { acceptor: TlsAcceptor::from(Arc::new(config)), roots }
}

fn url(address: SocketAddr) -> String {
    format!("https://localhost:{}", address.port())
}

async fn over_tls(acceptor: TlsAcceptor) -> Server {
    let wrap = move |stream| {
        let acceptor = acceptor.clone();
        async move { acceptor.accept(stream).await.ok() }
    };
    Server::start_with(|_| json(json!({ "data": [{ "id": "m" }] })), wrap).await
}

#[tokio::test]
async fn a_certificate_is_trusted_only_if_its_authority_is() {
    let certificate = certificate(&["http/1.1"]);
    let server = over_tls(certificate.acceptor).await;
    let error = upstream(&url(server.address), json!({})).describe().await.expect_err("untrusted");
    assert!(
        matches!(&error, UpstreamError::Tls { .. }) && error.to_string().contains("tls-roots"),
        "{error}"
    );
    let trusted =
        upstream(&url(server.address), json!({ "tls-roots": certificate.roots.path(), "kind": "openai" }));
    assert_eq!(trusted.describe().await.expect("a description").models[0].id, "m");
}

#[tokio::test]
async fn a_server_without_tls_is_a_failed_handshake() {
    // As a plain server answers what it can't read.
    let refuse = |mut stream: TcpStream| async move {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await.expect("written");
        None::<TcpStream>
    };
    let server = Server::start_with(|_| json(json!({})), refuse).await;
    let error = upstream(&url(server.address), json!({})).describe().await.expect_err("no TLS");
    assert!(matches!(error, UpstreamError::Tls { .. }), "{error}");
}

/// A server of HTTP/2 that answers `/stream` with an event and nothing more, and everything else at once.
struct Http2 {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// Streams that the client reset.
    left: watch::Receiver<usize>,
}

async fn http2(acceptor: TlsAcceptor) -> Http2 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (sender, left) = watch::channel(0);
    let (sender, connections) = (Arc::new(sender), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let (acceptor, sender) = (acceptor.clone(), Arc::clone(&sender));
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await.expect("a handshake");
                let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                    assert_eq!(request.version(), Version::HTTP_2);
                    let sender = Arc::clone(&sender);
                    async move { Ok::<_, Infallible>(Response::new(body(request.uri().path(), &sender))) }
                });
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                drop(http.serve_connection(TokioIo::new(stream), service).await);
            });
        }
    });
    Http2 { address, connections, left }
}

type Body = http_body_util::Either<Full<Bytes>, Channel<Bytes>>;

fn body(path: &str, left: &Arc<watch::Sender<usize>>) -> Body {
    if path != "/stream" {
        return Body::Left(Full::new(Bytes::from_static(b"{\"is\": \"well\"}")));
    }
    let (mut sender, body) = Channel::new(1);
    let left = Arc::clone(left);
    tokio::spawn(async move {
        // Sending goes on until the client resets the stream.
        while sender.send_data(Bytes::from_static(b"data: {\"n\": 1}\n\n")).await.is_ok() {}
        left.send_modify(|left| *left += 1);
    });
    Body::Right(body)
}

#[tokio::test]
async fn http2_carries_many_requests_on_one_connection_and_resets_a_dropped_stream() {
    let certificate = certificate(&["h2", "http/1.1"]);
    let mut server = http2(certificate.acceptor).await;
    let upstream =
        upstream(&url(server.address), json!({ "tls-roots": certificate.roots.path(), "kind": "openai" }));
    assert_eq!(upstream.post("/first", &json!({})).await, Ok(json!({ "is": "well" })));
    let mut stream = upstream.post_stream("/stream", &json!({})).await.expect("a stream");
    assert_eq!(stream.next().await, Some(Ok(json!({ "n": 1 }))));
    assert_eq!(upstream.post("/beside", &json!({})).await, Ok(json!({ "is": "well" })));
    drop(stream);
    server.left.wait_for(|left| *left == 1).await.expect("the server runs");
    assert_eq!(upstream.post("/after", &json!({})).await, Ok(json!({ "is": "well" })));
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}
