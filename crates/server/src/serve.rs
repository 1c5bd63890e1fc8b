//! Listening, and ending well.
//!
//! ```text
//! told to end           no new requests; downloads stop, running requests finish
//! after drain_timeout   engines stop: what still runs ends with a last event that says so
//! after one more second whoever serves has ended, whatever runs
//! ```
//! What blocks a thread (a load, a tokeniser) is not waited for: the caller must end the process without it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::http::Request;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::app::{Shared, router};
use crate::connections;
use crate::connections::slots::{Refusal, SlotListener, Slots};
use crate::ops::health::Phase;
use crate::tls::{Tls, TlsListener};

/// Time for last events to reach their readers; one that does not read is not waited for. With [`FAREWELL`] it is less than the
/// second in which a server ends after its drain time.
const LAST_EVENTS: Duration = Duration::from_millis(500);

/// Time for the last traces to reach their collector when the drain time is over.
const FAREWELL: Duration = Duration::from_millis(250);

/// Time for the last turns of agents to reach the disk: a file of some kilobytes each.
const LAST_WRITES: Duration = Duration::from_millis(100);

/// Sockets that are bound, so that clients can connect before any model is loaded.
pub struct Listening {
    listeners: Vec<TcpListener>,
    tls: Option<Tls>,
}

/// Where a request comes from; unknown without a socket.
pub fn peer<B>(request: &Request<B>) -> Option<IpAddr> {
    request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
}

impl Listening {
    /// Binds every address.
    pub async fn bind(addresses: &[SocketAddr]) -> io::Result<Self> {
        let mut listeners = Vec::new();
        for address in addresses {
            let bound = TcpListener::bind(address).await;
            let explain = |error: io::Error| {
                io::Error::new(error.kind(), format!("can't listen on {address}: {error}"))
            };
            listeners.push(bound.map_err(explain)?);
        }
        Ok(Self { listeners, tls: None })
    }

    /// Takes over sockets that listen already.
    pub fn adopt(sockets: Vec<std::net::TcpListener>) -> io::Result<Self> {
        let adopt = |socket: std::net::TcpListener| {
            socket.set_nonblocking(true)?;
            TcpListener::from_std(socket)
        };
        Ok(Self { listeners: sockets.into_iter().map(adopt).collect::<Result<_, _>>()?, tls: None })
    }

    /// The same sockets once more: whoever connects waits as long as they are held, also when nobody accepts.
    pub fn held(&self) -> io::Result<Vec<OwnedFd>> {
        self.listeners.iter().map(|listener| listener.as_fd().try_clone_to_owned()).collect()
    }

    /// Encrypts all connections.
    pub fn with_tls(mut self, tls: Option<Tls>) -> Self {
        self.tls = tls;
        self
    }

    /// Where it listens; a port given as 0 is known now.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Serves until `shutdown` is done, then drains.
    pub async fn serve(
        self,
        app: Shared,
        drain_timeout: Duration,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let (closing, closed) = watch::channel(false);
        let silence = app.connections.silence;
        let slots = Slots::new(app.connections.clone().at_least(self.listeners.len()));
        let mut servers = JoinSet::new();
        for listener in self.listeners {
            let (routes, closed) = (router(Shared::clone(&app)), closed.clone());
            let slots = Arc::clone(&slots);
            match &self.tls {
                None => {
                    let listener = SlotListener::new(listener, slots, Refusal::Answer);
                    servers.spawn(connections::accept(listener, routes, silence, closed))
                }
                Some(tls) => {
                    let listener = SlotListener::new(listener, slots, Refusal::Silence);
                    let listener = TlsListener::new(listener, tls.clone())?;
                    servers.spawn(connections::accept(listener, routes, silence, closed))
                }
            };
        }
        shutdown.await;
        let drained_by = Instant::now() + drain_timeout;
        app.life.enter(Phase::Draining);
        if let Some(shelf) = &app.shelf {
            shelf.close();
        }
        let _ = closing.send(true);
        if tokio::time::timeout_at(drained_by, finished(&mut servers)).await.is_err() {
            for model in app.models.all() {
                model.engine().stop();
            }
            let _ = tokio::time::timeout(LAST_EVENTS, finished(&mut servers)).await;
        }
        let agents = Shared::clone(&app);
        let _ = tokio::task::spawn_blocking(move || agents.agents.flush(LAST_WRITES)).await;
        if let Some(exporter) = &app.exporter {
            let _ =
                tokio::time::timeout_at(drained_by.max(Instant::now() + FAREWELL), exporter.finish()).await;
        }
        Ok(())
    }
}

async fn finished(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}
