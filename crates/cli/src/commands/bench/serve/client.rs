//! HTTP/1.1 to one server over connections that are kept open.
//!
//! It must never panic or wait for ever, whatever the server does: everything that goes wrong is a [`Fault`].

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::target::Target;

/// Largest answer that is read whole: the token ids of a prompt of some million tokens.
const LARGEST_ANSWER: usize = 64 << 20;

/// Characters of a server's complaint that are kept.
const COMPLAINT: usize = 300;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("could not connect: {0}")]
    Connect(String),
    #[error("HTTP {status}: {message}")]
    Status { status: u16, message: String },
    #[error("no end after {} s", .0.as_secs_f64())]
    Timeout(Duration),
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("the server ended the stream with an error: {0}")]
    Told(String),
    #[error("the answer makes no sense: {0}")]
    Nonsense(String),
    #[error("not sent: {0} requests are open already")]
    NotSent(usize),
}

impl Fault {
    /// What faults are counted by.
    pub fn kind(&self) -> String {
        match self {
            Fault::Connect(_) => "connect".into(),
            Fault::Status { status, .. } => format!("http {status}"),
            Fault::Timeout(_) => "timeout".into(),
            Fault::Broken(_) => "broken".into(),
            Fault::Told(_) => "error event".into(),
            Fault::Nonsense(_) => "nonsense".into(),
            Fault::NotSent(_) => "not sent".into(),
        }
    }
}

type Sender = SendRequest<Full<Bytes>>;

/// A server and the open connections to it.
pub struct Client {
    target: Target,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    /// For a whole request, from the first byte sent to the last received.
    pub deadline: Duration,
    idle: Mutex<Vec<Sender>>,
}

/// An answer whose body is still to be read.
pub struct Reply {
    pub body: Incoming,
    sender: Sender,
}

impl Client {
    pub fn new(target: Target, key: Option<&str>, deadline: Duration) -> Result<Client, String> {
        let host = HeaderValue::from_str(&target.authority()).map_err(|error| error.to_string())?;
        let secret = |key| HeaderValue::from_str(&format!("Bearer {key}"));
        let authorization = key.map(secret).transpose().map_err(|_| "the key is no text for a header")?;
        Ok(Client { target, host, authorization, deadline, idle: Mutex::default() })
    }

    /// Asks for a JSON document.
    pub async fn get(&self, route: &str) -> Result<Value, Fault> {
        self.whole(Method::GET, route, String::new()).await
    }

    /// Sends a JSON document, gets one back.
    pub async fn post(&self, route: &str, body: String) -> Result<Value, Fault> {
        self.whole(Method::POST, route, body).await
    }

    async fn whole(&self, method: Method, route: &str, body: String) -> Result<Value, Fault> {
        let whole = async {
            let reply = self.send(method, route, body.into()).await?;
            let Reply { body, sender } = reply;
            let bytes = read(body).await?;
            self.keep(sender);
            serde_json::from_slice(&bytes).map_err(|error| Fault::Nonsense(error.to_string()))
        };
        timeout(self.deadline, whole).await.unwrap_or(Err(Fault::Timeout(self.deadline)))
    }

    /// Sends a request; gives the answer as soon as its headers are there and say that all is well.
    pub async fn send(&self, method: Method, route: &str, body: Bytes) -> Result<Reply, Fault> {
        if let Some(mut sender) = self.waiting().await
            && let Ok(response) = sender.send_request(self.request(&method, route, body.clone())?).await
        {
            return accepted(response, sender).await;
        }
        // No connection was open, or it was closed by the server at this very moment.
        let mut sender = self.connect().await?;
        let response = sender.send_request(self.request(&method, route, body)?).await;
        accepted(response.map_err(|error| broken(&error))?, sender).await
    }

    /// Keeps a connection whose answer was read to its end.
    pub fn done(&self, reply: Reply) {
        self.keep(reply.sender);
    }

    fn keep(&self, sender: Sender) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
    }

    /// An open connection that nobody uses.
    async fn waiting(&self) -> Option<Sender> {
        loop {
            let mut sender = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            if sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    async fn connect(&self) -> Result<Sender, Fault> {
        let refused = |error: &dyn std::fmt::Display| Fault::Connect(error.to_string());
        let address = (self.target.host.as_str(), self.target.port);
        let stream = TcpStream::connect(address).await.map_err(|error| refused(&error))?;
        stream.set_nodelay(true).map_err(|error| refused(&error))?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| refused(&error))?;
        tokio::spawn(connection);
        Ok(sender)
    }

    fn request(&self, method: &Method, route: &str, body: Bytes) -> Result<Request<Full<Bytes>>, Fault> {
        let mut request = Request::builder()
            .method(method)
            .uri(self.target.path(route))
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream");
        if let Some(secret) = &self.authorization {
            request = request.header(AUTHORIZATION, secret);
        }
        request.body(Full::new(body)).map_err(|error| Fault::Nonsense(error.to_string()))
    }
}

async fn accepted(response: Response<Incoming>, sender: Sender) -> Result<Reply, Fault> {
    let status = response.status();
    if status == StatusCode::OK {
        return Ok(Reply { body: response.into_body(), sender });
    }
    let bytes = read(response.into_body()).await.unwrap_or_default();
    Err(Fault::Status { status: status.as_u16(), message: complaint(&bytes) })
}

/// What an error's body says.
fn complaint(body: &[u8]) -> String {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = &json["error"];
    let told = [&error["message"], error, &json["message"], &json["detail"]];
    let told = told.into_iter().find_map(Value::as_str).map(str::to_owned);
    let text = told.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
    text.chars().take(COMPLAINT).collect()
}

async fn read(body: Incoming) -> Result<Bytes, Fault> {
    let whole = Limited::new(body, LARGEST_ANSWER).collect().await;
    whole.map(http_body_util::Collected::to_bytes).map_err(|error| Fault::Broken(error.to_string()))
}

/// A failure of HTTP, with what lies below it.
pub fn broken(error: &hyper::Error) -> Fault {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    Fault::Broken(format!("{error}{}", cause.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_found_in_every_family_s_shape() {
        for body in [
            r#"{"error": {"message": "too long"}}"#,
            r#"{"error": "too long"}"#,
            r#"{"message": "too long"}"#,
            r#"{"detail": "too long"}"#,
            "too long\n",
        ] {
            assert_eq!(complaint(body.as_bytes()), "too long");
        }
        assert_eq!(complaint("ü".repeat(9999).as_bytes()).chars().count(), COMPLAINT);
    }

    #[test]
    fn faults_are_counted_by_kind_not_by_words() {
        let status = |message: &str| Fault::Status { status: 503, message: message.into() };
        assert_eq!(status("a").kind(), status("b").kind());
        assert_eq!(status("a").to_string(), "HTTP 503: a");
    }
}
