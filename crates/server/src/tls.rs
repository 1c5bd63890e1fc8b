//! TLS by certificate files, which are read again when they change: certificates are renewed while a server runs.
//!
//! Handshakes run beside each other and have a time limit: a client that connects and says nothing holds up nobody.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use axum::serve::Listener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
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

/// How often it is looked whether the files have changed.
const GLANCE: Duration = Duration::from_secs(30);

/// A certificate and its key.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    current: Arc<Current>,
}

/// The files, and what was last read from them.
#[derive(Debug)]
struct Current {
    certificate: PathBuf,
    key: PathBuf,
    /// When the files were last written before they were first read.
    written: [Option<SystemTime>; 2],
    read: RwLock<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.read.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Current {
    /// When the files were last written, as far as can be told.
    fn written(&self) -> [Option<SystemTime>; 2] {
        written(&self.certificate, &self.key)
    }

    fn renew(&self) -> Result<(), TlsError> {
        let read = read(&self.certificate, &self.key)?;
        *self.read.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(read);
        Ok(())
    }

    /// Reads the files again whenever they change.
    async fn watch(self: Arc<Self>, glance: Duration) {
        let mut known = self.written;
        loop {
            tokio::time::sleep(glance).await;
            let written = self.written();
            if written == known {
                continue;
            }
            match self.renew() {
                Ok(()) => tracing::info!(target: "serve", "the certificate was read again"),
                // A file may be half written; it is looked at again.
                Err(error) => {
                    tracing::warn!(target: "serve", %error, "the certificate changed and can't be used yet");
                    continue;
                }
            }
            known = written;
        }
    }
}

fn written(certificate: &Path, key: &Path) -> [Option<SystemTime>; 2] {
    [certificate, key].map(|path| path.metadata().and_then(|data| data.modified()).ok())
}

/// Reads a certificate and its key from PEM files.
fn read(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
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
    Ok(CertifiedKey::from_der(chain, key, &ring::default_provider())?)
}

impl Tls {
    /// Reads both from PEM files.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let written = written(certificate, key);
        let read = RwLock::new(Arc::new(read(certificate, key)?));
        let current = Arc::new(Current { certificate: certificate.into(), key: key.into(), written, read });
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as _);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), current })
    }

    /// Reads the files again. What they had before holds until both can be used.
    pub fn renew(&self) -> Result<(), TlsError> {
        self.current.renew()
    }
}

/// A connection whose handshake is done.
type Ready = (TlsStream<Connection>, SocketAddr);

/// A listener whose connections are encrypted.
pub struct TlsListener {
    ready: mpsc::Receiver<Ready>,
    address: SocketAddr,
    accepting: JoinHandle<()>,
    watching: JoinHandle<()>,
}

impl TlsListener {
    /// Encrypts a listener's connections. Needs a runtime.
    pub fn new<L>(listener: L, tls: Tls) -> io::Result<Self>
    where
        L: Listener<Io = Connection, Addr = SocketAddr>,
    {
        let address = listener.local_addr()?;
        let (sender, ready) = mpsc::channel(1);
        let watching = tokio::spawn(Arc::clone(&tls.current).watch(GLANCE));
        let accepting = tokio::spawn(shake_hands(listener, tls.acceptor, sender));
        Ok(Self { ready, address, accepting, watching })
    }
}

async fn shake_hands<L>(mut listener: L, acceptor: TlsAcceptor, ready: mpsc::Sender<Ready>)
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
        self.watching.abort();
    }
}
