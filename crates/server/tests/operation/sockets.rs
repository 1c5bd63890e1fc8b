//! What only shows on real sockets: TLS, and spans that reach a collector.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::routing::post as route;
use axum::{Json, Router};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use ropeway_server::App;
use ropeway_server::connections::slots::ConnectionLimits;
use ropeway_server::observe::otlp::Exporter;
use ropeway_server::serve::Listening;
use ropeway_server::tls::Tls;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::{app, chat, question, send, text};

/// Starts a server; it ends when the sender is dropped.
pub async fn serve(app: Arc<App>, tls: Option<Tls>) -> (SocketAddr, oneshot::Sender<()>) {
    let listening = Listening::bind(&["127.0.0.1:0".parse().unwrap()]).await.expect("a port").with_tls(tls);
    let address = listening.addresses().expect("an address")[0];
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async move { drop(stopped.await) };
    tokio::spawn(listening.serve(app, Duration::from_secs(1), shutdown));
    (address, stop)
}

/// Asks over a connection, on a thread of its own.
async fn ask(connect: impl FnOnce() -> Box<dyn Connection> + Send + 'static) -> String {
    let exchange = move || {
        let (mut stream, body) = (connect(), question(json!({})).to_string());
        let head =
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length";
        let mut answer = Vec::new();
        if stream.write_all(format!("{head}: {}\r\n\r\n{body}", body.len()).as_bytes()).is_ok() {
            let _ = stream.read_to_end(&mut answer);
        }
        String::from_utf8_lossy(&answer).into_owned()
    };
    tokio::task::spawn_blocking(exchange).await.expect("an answer")
}

trait Connection: Read + Write {}

impl<T: Read + Write> Connection for T {}

async fn ask_in_the_clear(address: SocketAddr) -> String {
    ask(move || Box::new(TcpStream::connect(address).expect("a connection"))).await
}

#[tokio::test]
async fn every_address_is_served_even_if_there_are_more_of_them_than_connections() {
    let Some(app) = app(|app| app.connections = ConnectionLimits::new(1)) else { return };
    let any_port = "127.0.0.1:0".parse().unwrap();
    let listening = Listening::bind(&[any_port, any_port]).await.expect("two ports");
    let addresses = listening.addresses().expect("addresses");
    tokio::spawn(listening.serve(app, Duration::ZERO, std::future::pending()));
    for address in addresses {
        assert!(ask_in_the_clear(address).await.starts_with("HTTP/1.1 200"));
    }
}

/// Writes a new certificate and its key into a folder.
fn certify(folder: &Path) -> (PathBuf, PathBuf, CertificateDer<'static>) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, cert.pem()).expect("written");
    std::fs::write(&key, signing_key.serialize_pem()).expect("written");
    (certificate, key, cert.der().clone())
}

/// Asks a server whose certificate has to be this one.
async fn ask_over_tls(address: SocketAddr, trusted: CertificateDer<'static>) -> String {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).expect("a root");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let connect = move || TcpStream::connect(address).expect("a connection");
    ask(move || Box::new(StreamOwned::new(client, connect()))).await
}

#[tokio::test]
async fn a_certificate_that_was_renewed_is_used_and_one_that_is_broken_is_not() {
    let Some(app) = app(|_| ()) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate, key, first) = certify(folder.path());
    let tls = Tls::load(&certificate, &key).expect("a usable certificate");
    let (address, _stop) = serve(app, Some(tls.clone())).await;
    std::fs::write(&certificate, "half a certif").expect("written");
    assert!(tls.renew().is_err());
    assert!(ask_over_tls(address, first.clone()).await.starts_with("HTTP/1.1 200 OK"));
    let (_, _, second) = certify(folder.path());
    tls.renew().expect("a usable certificate");
    assert!(ask_over_tls(address, second).await.starts_with("HTTP/1.1 200 OK"));
    assert_eq!(ask_over_tls(address, first).await, "", "the old one is gone");
}

#[tokio::test]
async fn a_server_with_a_certificate_answers_over_tls_even_beside_a_client_that_never_speaks() {
    let Some(app) = app(|_| ()) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate, key, trusted) = certify(folder.path());
    let tls = Tls::load(&certificate, &key).expect("a usable certificate");
    let (address, _stop) = serve(app, Some(tls)).await;

    let _silent = TcpStream::connect(address).expect("a connection");
    let answer = ask_over_tls(address, trusted).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("chat.completion"), "{answer}");

    let plain = ask_in_the_clear(address).await;
    assert!(!plain.contains("HTTP/1.1"), "nothing is answered in the clear: {plain}");
    let swapped = Tls::load(&key, &certificate).err().expect("an error").to_string();
    assert!(swapped.contains("no certificate"), "{swapped}");
    let absent = Tls::load(&folder.path().join("x"), &key).err().expect("an error").to_string();
    assert!(absent.contains("the certificate") && absent.contains("can't be read"), "{absent}");
}

#[tokio::test]
async fn a_clients_address_is_known_and_limits_hold_for_it() {
    let one = std::num::NonZeroU32::new(1);
    let Some(app) = app(|app| app.guard.allowance.tokens_per_minute = one) else { return };
    let (address, _stop) = serve(app, None).await;
    assert!(ask_in_the_clear(address).await.starts_with("HTTP/1.1 200"));
    let second = ask_in_the_clear(address).await;
    assert!(second.starts_with("HTTP/1.1 429") && second.contains("retry-after: "), "{second}");
}

/// A collector that hands on what it gets.
async fn collector() -> (String, mpsc::UnboundedReceiver<Value>) {
    let (sender, batches) = mpsc::unbounded_channel();
    let take = move |Json(batch): Json<Value>| {
        let sender = sender.clone();
        async move { drop(sender.send(batch)) }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let routes = Router::new().route("/v1/traces", route(take));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (format!("http://{address}"), batches)
}

#[tokio::test]
async fn a_collector_gets_the_spans_of_each_request() {
    let (endpoint, mut batches) = collector().await;
    let exporter = Exporter::start(endpoint.parse().expect("an address"));
    let Some(app) = app(|app| app.exporter = Some(exporter.clone())) else { return };
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let headers = [("traceparent", parent.as_str()), ("x-request-id", "mine-1")];
    text(send(&app, chat(&headers, &question(json!({})))).await).await;
    exporter.finish().await;

    let batch = batches.recv().await.expect("a batch");
    let spans = batch["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans");
    let names: Vec<_> = spans.iter().map(|span| span["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["POST /v1/chat/completions", "queue", "prefill", "decode"]);
    let whole = &spans[0];
    assert_eq!((&whole["traceId"], &whole["parentSpanId"]), (&json!(trace), &json!("00f067aa0ba902b7")));
    assert!(
        spans[1..].iter().all(|span| span["parentSpanId"] == whole["spanId"] && span["traceId"] == trace)
    );
    let time =
        |span: &Value, name: &str| span[name].as_str().expect("text").parse::<u128>().expect("a number");
    let moments: Vec<_> =
        spans[1..].iter().flat_map(|s| [time(s, "startTimeUnixNano"), time(s, "endTimeUnixNano")]).collect();
    assert!(moments.is_sorted() && moments[0] >= time(whole, "startTimeUnixNano"), "{moments:?}");
    let attributes = whole["attributes"].to_string();
    assert!(attributes.contains("mine-1") && attributes.contains("\"intValue\":\"4\""), "{attributes}");
    assert_eq!(exporter.dropped(), 0);
}

#[tokio::test]
async fn spans_that_nobody_takes_are_counted_and_hold_up_nothing() {
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address");
    let exporter = Exporter::start(format!("http://{closed}").parse().expect("an address"));
    let Some(app) = app(|app| app.exporter = Some(exporter.clone())) else { return };
    let answer = send(&app, chat(&[], &question(json!({})))).await;
    assert_eq!(answer.status(), 200);
    text(answer).await;
    exporter.finish().await;
    assert_eq!(exporter.dropped(), 1);
}
