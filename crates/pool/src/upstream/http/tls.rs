//! Whom to trust: the roots that every TLS client of this program trusts, and those of the operator.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// HTTP/2 as TLS negotiates it.
pub(super) const HTTP2: &[u8] = b"h2";

/// A client's side that offers HTTP/2 and HTTP/1.1; the error is a sentence.
pub(super) fn config(roots: Option<&Path>) -> Result<ClientConfig, String> {
    let mut trusted = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(path) = roots {
        add_file(&mut trusted, path)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = config.with_root_certificates(trusted).with_no_client_auth();
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn add_file(trusted: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let unreadable = |why: String| format!("tls-roots {} can't be read: {why}", path.display());
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(error.to_string()))?;
    let mut count = 0;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
        trusted.add(certificate).map_err(|error| unreadable(error.to_string()))?;
        count += 1;
    }
    if count == 0 { Err(unreadable("it has no certificate in it".into())) } else { Ok(()) }
}
