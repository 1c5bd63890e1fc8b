//! The collector: where it is, and one request to it.

use std::str::FromStr;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{Request, Uri};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// How long a collector may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Port and path of OTLP over HTTP.
const PORT: u16 = 4318;
const PATH: &str = "/v1/traces";

/// An OpenTelemetry collector that takes OTLP over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    host: String,
    port: u16,
    path: String,
}

impl FromStr for Collector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let how = "write it as http://127.0.0.1:4318";
        let uri: Uri = text.parse().map_err(|_| format!("{text:?} is no address; {how}"))?;
        match (uri.scheme_str(), uri.host()) {
            (Some("http"), Some(host)) if !host.is_empty() => Ok(Self {
                host: host.into(),
                port: uri.port_u16().unwrap_or(PORT),
                path: Some(uri.path()).filter(|path| *path != "/").unwrap_or(PATH).into(),
            }),
            (Some("https"), _) => Err(format!(
                "traces are sent to a collector nearby, without encryption; {how} and let it pass them on"
            )),
            _ => Err(format!("{text:?} is no address of a collector; {how}")),
        }
    }
}

impl Collector {
    /// Delivers a batch.
    pub async fn send(&self, batch: &Value) -> Result<(), String> {
        let sent = tokio::time::timeout(TIMEOUT, self.post(batch.to_string())).await;
        sent.unwrap_or_else(|_| Err("the collector does not answer".into()))
    }

    async fn post(&self, body: String) -> Result<(), String> {
        let (host, port) = (&self.host, self.port);
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let stream =
            TcpStream::connect((name, port)).await.map_err(|error| format!("{host}:{port}: {error}"))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        let connection = tokio::spawn(connection);
        let request = Request::post(&self.path)
            .header(HOST, format!("{host}:{port}"))
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .map_err(|error| error.to_string())?;
        let answer = sender.send_request(request).await.map_err(|error| error.to_string());
        connection.abort();
        match answer?.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("the collector answered {status}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_leave_out_port_and_path() {
        let collector =
            |host: &str, port, path: &str| Ok(Collector { host: host.into(), port, path: path.into() });
        assert_eq!("http://localhost".parse(), collector("localhost", 4318, "/v1/traces"));
        assert_eq!("http://[::1]:99/x".parse(), collector("[::1]", 99, "/x"));
        for wrong in ["localhost:4318", "https://a.example", "", "ftp://a", "http://"] {
            assert!(wrong.parse::<Collector>().is_err(), "{wrong}");
        }
    }
}
