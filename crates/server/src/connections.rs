//! Connections: HTTP/1.1 over whatever a listener gives, plain or encrypted.
//!
//! What `axum::serve` does, with a clock: it must never wait for ever for a client that began a request and fell silent.
//! Every request knows where it comes from (`ConnectInfo<SocketAddr>`). [`pace`] is the least speed of a body, [`slots`] how
//! many connections there may be.

mod pace;
pub mod slots;

pub use pace::SlowBody;

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::pace::Arriving;

/// Bytes of a connection that are read before they are handed on: the longest headers, and a piece of a body.
const BUFFER: usize = 64 << 10;

/// Takes connections until `closing` is true, then waits for the requests that run. A request's headers may take as long as
/// `silence`, counted from the end of the one before.
pub async fn accept<L>(mut listener: L, router: Router, silence: Duration, closing: watch::Receiver<bool>)
where
    L: Listener<Addr = SocketAddr>,
{
    let mut connections = JoinSet::new();
    let mut closed = closing.clone();
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = closed.wait_for(|closed| *closed) => break,
        };
        connections.spawn(serve::<L>(stream, peer, router.clone(), silence, closing.clone()));
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Serves requests until the client leaves, or until `closing` is true and the running one is answered.
async fn serve<L: Listener>(
    stream: L::Io,
    peer: SocketAddr,
    router: Router,
    silence: Duration,
    mut closing: watch::Receiver<bool>,
) {
    let routes = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        routes.call(request.map(Arriving::new))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(silence)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // How a connection broke concerns nobody but its client, who knows.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = closing.wait_for(|closing| *closing) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
