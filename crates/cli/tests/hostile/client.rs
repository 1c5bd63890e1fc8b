//! Who asks: a client with a key or without, whose every wait is bounded.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest wait for an answer: attacks must end long before.
pub const LONGEST_WAIT: Duration = Duration::from_secs(40);

/// Longest wait for a server that does not read on: it may leave bodies unread that it has no room for.
const LONGEST_WRITE: Duration = Duration::from_secs(10);

/// Somebody who asks a server.
#[derive(Clone, Copy)]
pub struct Client {
    pub server: SocketAddr,
    pub key: Option<&'static str>,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// 0 if nothing came in time.
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    fn of(bytes: &[u8]) -> Answer {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// A header, by its name in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim)
    }

    /// Whether the server failed: no answer at all, or a 5xx that does not mean "later".
    pub fn is_failure(&self) -> bool {
        self.status == 0 || (self.status >= 500 && self.status != 503)
    }
}

impl Client {
    pub fn with_key(self, key: &'static str) -> Client {
        Client { key: Some(key), ..self }
    }

    /// Sends a request on a connection of its own and leaves the answer unread.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.server).unwrap();
        stream.set_read_timeout(Some(LONGEST_WAIT)).unwrap();
        stream.set_write_timeout(Some(LONGEST_WRITE)).unwrap();
        let key = self.key.map(|key| ("x-api-key", key));
        let lines = headers.iter().copied().chain(key).map(|(name, value)| format!("{name}: {value}\r\n"));
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n{}",
            self.server,
            body.len(),
            lines.collect::<String>()
        );
        // A server may answer and close before it has read everything.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(b"\r\n"));
        let _ = stream.write_all(body);
        stream
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_with(path, &[], body)
    }

    pub fn post_with(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        read(self.send("POST", path, headers, body.to_string().as_bytes()))
    }

    pub fn get(&self, path: &str) -> Answer {
        read(self.send("GET", path, &[], b""))
    }

    /// Whether the server accepts connections.
    pub fn can_connect(&self) -> bool {
        TcpStream::connect(self.server).is_ok()
    }

    /// Asks a small question that no cache knows; how long its first token took, or why there was none.
    pub fn first_token(&self, headers: &[(&str, &str)]) -> Result<Duration, Answer> {
        let began = Instant::now();
        let mut stream =
            self.send("POST", "/v1/completions", headers, small_question().to_string().as_bytes());
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        while began.elapsed() < LONGEST_WAIT {
            match stream.read(&mut part) {
                Ok(0) | Err(_) => break,
                Ok(count) => bytes.extend_from_slice(&part[..count]),
            }
            if String::from_utf8_lossy(&bytes).contains("data: {") {
                let took = began.elapsed();
                let _ = stream.read_to_end(&mut bytes);
                return Ok(took);
            }
        }
        Err(Answer::of(&bytes))
    }
}

/// The whole answer, or as much of it as came in time.
pub fn read(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // A server that turns a body away may reset the connection; what it said before counts.
    let _ = stream.read_to_end(&mut bytes);
    Answer::of(&bytes)
}

/// A prompt whose beginning no cache knows.
pub fn new_text(words: usize) -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{number} times. {}", "the story goes on and ".repeat(words / 5))
}

fn small_question() -> Value {
    json!({"prompt": new_text(10), "max_tokens": 8, "ignore_eos": true, "stream": true})
}
