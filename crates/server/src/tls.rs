//! TLS by certificate files.
//!
//! Handshakes run beside each other and have a time limit: a client that connects and says nothing holds up nobody.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::connections::slots::Connection;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Handshakes at once; later ones wait.
const AT_ONCE: usize = 1024;

/// Why certificate files can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read as PEM.
    #[error("{what} {} can't be read: {source}", path.display())]
    Unreadable {
        /// Which of the two.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: pem::Error,
    },
    /// There is no certificate in the file.
    #[error("{} has no certificate in it; it must be a PEM file with the certificate first, then those of its issuers", .0.display())]
    Empty(PathBuf),
    /// Certificate and key can't be used together.
    #[error("the certificate and the key can't be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// A certificate and its key.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    /// Reads both from PEM files.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let unreadable = |what, path: &Path| {
            let path = path.to_owned();
            move |source| TlsError::Unreadable { what, path, source }
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(unreadable("the certificate", certificate))?;
        if chain.is_empty() {
            return Err(TlsError::Empty(certificate.to_owned()));
        }
        let key = PrivateKeyDer::from_pem_file(key).map_err(unreadable("the key", key))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

/// A connection whose handshake is done.
type Ready = (TlsStream<Connection>, SocketAddr);

/// A listener whose connections are encrypted.
pub struct TlsListener {
    ready: mpsc::Receiver<Ready>,
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl TlsListener {
    /// Encrypts a listener's connections. Needs a runtime.
    pub fn new<L>(listener: L, tls: Tls) -> io::Result<Self>
    where
        L: Listener<Io = Connection, Addr = SocketAddr>,
    {
        let address = listener.local_addr()?;
        let (sender, ready) = mpsc::channel(1);
        let accepting = tokio::spawn(shake_hands(listener, tls, sender));
        Ok(Self { ready, address, accepting })
    }
}

async fn shake_hands<L>(mut listener: L, Tls(acceptor): Tls, ready: mpsc::Sender<Ready>)
where
    L: Listener<Io = Connection, Addr = SocketAddr>,
{
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let (stream, peer) = listener.accept().await;
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let (acceptor, ready) = (acceptor.clone(), ready.clone());
        tokio::spawn(async move {
            let shaken = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await;
            drop(slot);
            if let Ok(Ok(stream)) = shaken {
                let _ = ready.send((stream, peer)).await;
            }
        });
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<Connection>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> Ready {
        match self.ready.recv().await {
            Some(ready) => ready,
            // The task that accepts has fallen; there is nothing more to come.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

impl Drop for TlsListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
