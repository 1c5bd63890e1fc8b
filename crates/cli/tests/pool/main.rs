//! A server in front of others: real `ropeway serve` processes behind it, and between them whatever can go wrong.
#![cfg(unix)]

mod apis;
mod failures;
mod kills;
mod proxy;
mod settings;
#[path = "../support/mod.rs"]
mod support;
mod vllm;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::Sandbox;
use support::server::Server;

/// A tiny model of random weights: its tokens are nonsense, but always the same.
fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models/llama")
}

/// A server that computes.
fn upstream(more: &[&str]) -> Server {
    let fixed = ["--kv-memory", "16MiB", "--no-embeddings", "--threads", "1"];
    Server::start(model().to_str().unwrap(), &[&fixed, more].concat())
}

/// A key that no upstream knows, in the file `wrong.key` beside the settings.
const WRONG_KEY: &str = "not-a-key-that-is-known";

/// A server that stands in front of these, with what else a table says about each.
fn front(upstreams: &[String], table: &str, more: &[&str]) -> Server {
    let sandbox = Sandbox::new();
    let tables = upstreams
        .iter()
        .enumerate()
        .map(|(index, url)| format!("[[upstream]]\nname = \"u{index}\"\nurl = \"{url}\"\n{table}\n"));
    sandbox.write("ropeway.toml", tables.collect::<String>().as_bytes());
    sandbox.write("wrong.key", WRONG_KEY.as_bytes());
    let fixed = ["serve", "--listen", "127.0.0.1:0", "--alias", "m=llama"];
    let command = sandbox.command(&[&fixed, more].concat());
    Server::launch(sandbox, command)
}

/// A table that says where the tokenizer is.
fn with_tokenizer() -> String {
    format!("tokenizer = {:?}", model().to_str().unwrap())
}

/// The body of a greedy request for so many tokens.
fn greedy(number: u32, tokens: usize) -> Value {
    let prompt: Vec<u32> = (0..12).map(|token| 10 + (number * 31 + token * 7) % 300).collect();
    json!({"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true})
}

/// The whole text of a request.
fn text(server: &Server, body: &Value) -> String {
    let (status, answer) = server.post("/v1/completions", body.to_string());
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["choices"][0]["text"].as_str().unwrap().to_owned()
}

/// What `/upstreams` says.
fn upstreams(server: &Server) -> Value {
    let (status, answer) = server.request("GET", "/upstreams", "");
    assert_eq!(status, 200, "{answer}");
    serde_json::from_str(&answer).unwrap()
}
