//! A server that is started as vLLM's users type it.

mod support;

use std::io::{Read, Write};

use support::server::Server;
use support::{Sandbox, smollm2};

fn ask(server: &Server, key: Option<&str>, path: &str, body: &str) -> String {
    let mut stream = server.connect();
    let key = key.map_or(String::new(), |key| format!("authorization: Bearer {key}\r\n"));
    let method = if body.is_empty() { "GET" } else { "POST" };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{key}");
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn model_host_port_key_and_served_name_mean_what_they_mean_to_vllm() {
    let Some(model) = smollm2() else { return };
    let sandbox = Sandbox::new();
    let typed = ["--host", "127.0.0.1", "--port", "0", "--api-key", "sk-from-vllm", "--no-embeddings"];
    let names = ["--served-model-name", "small", "smaller"];
    let command = sandbox.command(&[&["serve", &model], &typed[..], &names].concat());
    let server = Server::launch(sandbox, command);
    assert!(ask(&server, None, "/v1/models", "").starts_with("HTTP/1.1 401"));
    let listed = ask(&server, Some("sk-from-vllm"), "/v1/models", "");
    assert!(listed.contains("\"id\":\"small\"") && listed.contains("\"id\":\"smaller\""), "{listed}");
    let body = r#"{"model": "smaller", "prompt": "Once", "max_tokens": 2}"#;
    assert!(ask(&server, Some("sk-from-vllm"), "/v1/completions", body).starts_with("HTTP/1.1 200"));
}
