//! Many clients and bad ones at once, over real sockets: the right status codes, bounded memory, and somebody who just
//! asks gets an answer meanwhile.
#![cfg(unix)]

#[path = "../../../tests/default_models.rs"]
mod default_models;
mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};
use support::server::{Server, answer, until};

/// Clients that stream at once.
const CROWD: usize = 2000;

/// Clients whose headers never end, and clients who send half of their body.
const HALF_OPEN: usize = 100;

/// Clients who never read their large answers.
const SILENT: usize = 20;

/// Memory that a crowd may cost, in MB, besides keys and values: some 50 KB a connection.
const CROWD_MB: f64 = 100.0;

/// Families' routes, each with a body that would do.
fn routes() -> [(&'static str, Value); 4] {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let short = json!({"num_predict": 4});
    [
        ("/v1/chat/completions", json!({"messages": messages, "max_tokens": 4})),
        ("/v1/messages", json!({"model": "m", "messages": messages, "max_tokens": 4})),
        ("/api/chat", json!({"model": "m", "messages": messages, "stream": false, "options": short})),
        ("/generate", json!({"prompt": "Hi", "max_tokens": 4})),
    ]
}

/// A server of a tiny model of random weights.
fn tiny(more: &[&str]) -> Server {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models/llama");
    Server::start(model.to_str().unwrap(), &[&["--kv-memory", "16MiB"], more].concat())
}

/// A connection is an open file; 2,000 are more than a process gets without asking.
fn raise_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(hard > 2 * CROWD as u64, "this machine allows {hard} open files only");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
}

/// Somebody who just asks, in every family.
fn everybody_is_served(server: &Server, when: &str) {
    for (path, body) in routes() {
        let began = Instant::now();
        let (status, text) = server.post(path, body.to_string());
        assert_eq!(status, 200, "{when}, {path}: {text}");
        println!("{when}: {path} in {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
    }
}

/// Clients who send this and nothing more.
fn unfinished(server: &Server, start: &str) -> Vec<TcpStream> {
    let one = |_| {
        let mut stream = server.connect();
        stream.write_all(start.as_bytes()).unwrap();
        stream
    };
    (0..HALF_OPEN).map(one).collect()
}

#[test]
fn two_thousand_streams_and_half_open_sockets_leave_the_others_alone() {
    let Some(model) = default_models::smollm2() else { return };
    raise_limit();
    let small = ["--context", "512", "--kv-memory", "32MiB", "--queue", "4096"];
    let server = Server::start(model.to_str().unwrap(), &small);
    everybody_is_served(&server, "before");
    let before = server.resident_mb();
    let half_open = unfinished(&server, "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n");
    let half_sent = unfinished(
        &server,
        "POST /generate HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{\"prompt\"",
    );
    let body =
        json!({"prompt": "Once", "max_tokens": 48, "ignore_eos": true, "stream": true, "user": "crowd"});
    let body = body.to_string();
    let crowd: Vec<TcpStream> = (0..CROWD).map(|_| server.send("/v1/completions", &body)).collect();
    for mut stream in &crowd {
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
    }
    let (running, waiting, during) = (server.running(), server.waiting(), server.resident_mb());
    println!("{running} streams run, {waiting} wait");
    // On a fast machine the first are done before the last are there.
    assert!(running + waiting > 1800, "{running} + {waiting} streams are open");
    everybody_is_served(&server, "in the crowd");
    for stream in half_sent {
        let (status, text) = answer(stream);
        assert!(matches!(status, 400 | 408), "{status}: {text}");
    }
    for mut stream in half_open {
        // The server closes it, with or without a word.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&rest));
    }
    drop(crowd);
    server.settle();
    everybody_is_served(&server, "after");
    let after = server.resident_mb();
    println!("resident: {before:.0} MB before, {during:.0} MB with all, {after:.0} MB after");
    // Keys and values are touched only as they are used.
    let most = before + 34.0 + CROWD_MB;
    assert!(during < most && after < most, "{before} -> {during} -> {after} MB");
}

#[test]
fn answers_that_nobody_reads_end_all_the_same() {
    let server = tiny(&[]);
    everybody_is_served(&server, "before");
    let before = server.resident_mb();
    // Several megabytes each: more than the sockets on both sides hold.
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body = json!({
        "messages": messages, "n": 16, "logprobs": true, "top_logprobs": 20, "ignore_eos": true, "stream": true,
    });
    let silent: Vec<TcpStream> =
        (0..SILENT).map(|_| server.send("/v1/chat/completions", body.to_string())).collect();
    until("all are taken", || server.count("requests_total", "") as usize >= SILENT + routes().len());
    everybody_is_served(&server, "beside those who never read");
    server.settle();
    let during = server.resident_mb();
    drop(silent);
    everybody_is_served(&server, "after");
    println!(
        "resident: {before:.0} MB before, {during:.0} MB with all, {:.0} MB after",
        server.resident_mb()
    );
    assert!(during - before < 17.0 + CROWD_MB, "{before} -> {during} MB");
}

/// The body with a byte in it that no UTF-8 has.
fn not_text(body: &str) -> Vec<u8> {
    let place = body.find("Hi").unwrap();
    let mut bytes = body.as_bytes().to_vec();
    bytes[place] = 0xFF;
    bytes
}

#[test]
fn bodies_that_are_huge_broken_or_deep_get_the_right_status_and_hold_up_nobody() {
    let server = tiny(&[]);
    everybody_is_served(&server, "before");
    let before = server.resident_mb();
    for (path, good) in routes() {
        let good = good.to_string();
        let deep = |text: &str| good.replace("\"Hi\"", &text.repeat(100_000));
        let expect = |body: &[u8], wanted: u16, what: &str| {
            let (status, text) = server.post(path, body);
            let start: String = text.chars().take(300).collect();
            assert_eq!(status, wanted, "{path}, {what}: {start}");
            assert!(start.contains("error"), "{path}, {what}: {start}");
        };
        expect(&vec![b' '; 40 << 20], 413, "40 MB");
        expect(&not_text(&good), 400, "malformed UTF-8");
        expect(deep("[").as_bytes(), 400, "deep lists");
        expect(deep("{\"a\":").as_bytes(), 400, "deep objects");
        expect(b"", 400, "nothing");
    }
    let huge = |body: &Value| body.to_string().replace("Hi", &"many words ".repeat(900_000));
    let huge: Vec<_> = routes().iter().map(|(path, body)| server.send(path, huge(body))).collect();
    everybody_is_served(&server, "beside four bodies of 10 MB");
    for stream in huge {
        let (status, text) = answer(stream);
        assert_eq!(status, 400, "{text}");
    }
    let after = server.resident_mb();
    println!("resident: {before:.0} MB before, {after:.0} MB after");
    // The four bodies, their texts and their tokens, and what the allocator keeps of them.
    assert!(after - before < 250.0, "{before} -> {after} MB");
}

#[test]
fn a_full_queue_turns_away_at_once() {
    let server = tiny(&["--queue", "0"]);
    for (path, body) in routes() {
        let (status, text) = server.post(path, body.to_string());
        assert!(matches!(status, 503 | 529), "{path}: {status} {text}");
    }
    assert_eq!(server.running() + server.waiting(), 0);
}
