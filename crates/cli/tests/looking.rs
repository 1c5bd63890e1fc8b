//! `show` and `tokenize`: looking into a model without running it.

mod support;

use std::process::Stdio;

use serde_json::{Value, json};
use support::Sandbox;
use support::tiny_gguf::tiny_gguf;

/// A sandbox with a tiny model in it.
fn with_model() -> (Sandbox, String) {
    let sandbox = Sandbox::new();
    let model = sandbox.write("tiny.gguf", &tiny_gguf());
    (sandbox, model)
}

#[test]
fn show_tells_what_a_file_is_made_of() {
    let (sandbox, model) = with_model();
    let out = sandbox.run(&["show", &model]).ok();
    for line in [
        "format         GGUF",
        "architecture   llama",
        "context        64 tokens",
        "quantization   F32",
        "1 x f32 (160)",
    ] {
        assert!(out.contains(line), "{line} is missing in:\n{out}");
    }
}

#[test]
fn show_gives_the_same_as_json() {
    let (sandbox, model) = with_model();
    let facts: Value = serde_json::from_str(&sandbox.run(&["show", &model, "--json"]).ok()).unwrap();
    assert_eq!((&facts["parameters"], &facts["context"]), (&json!(160), &json!(64)));
    assert_eq!(facts["tensors"], json!([{ "type": "f32", "count": 1, "parameters": 160 }]));
    assert_eq!(facts["chat_template"], json!("absent"));
}

#[test]
fn a_model_that_was_not_pulled_comes_with_the_command_that_pulls_it() {
    let err = Sandbox::new().run(&["show", "smollm2"]).failed();
    assert_eq!(
        err,
        "error: `smollm2:135m` is not on this machine yet\nhint: run `ropeway pull smollm2:135m`\n"
    );
}

#[test]
fn a_file_that_is_no_model_is_an_error_not_a_panic() {
    let sandbox = Sandbox::new();
    let whole = tiny_gguf();
    for (name, bytes) in [("text.gguf", &b"no model"[..]), ("cut.gguf", &whole[..200]), ("empty.gguf", b"")] {
        let path = sandbox.write(name, bytes);
        let err = sandbox.run(&["show", &path]).failed();
        assert!(err.starts_with("error: ") && !err.contains("panicked"), "{err}");
    }
}

#[test]
fn text_comes_from_arguments_a_file_or_standard_input() {
    let (sandbox, model) = with_model();
    let expected = "       3  \"ab\"\n       2  \" \"\n       1  \"b\"\n3 tokens\n";
    let file = sandbox.write("text", b"ab b");
    assert_eq!(sandbox.run(&["tokenize", "-m", &model, "ab", "b"]).ok(), expected);
    assert_eq!(sandbox.run(&["tokenize", "-m", &model, "--file", &file]).ok(), expected);
    assert_eq!(sandbox.run_with_input(&["tokenize", "-m", &model], b"ab b").ok(), expected);
}

#[test]
fn special_tokens_are_recognised_unless_the_text_is_plain() {
    let (sandbox, model) = with_model();
    let ids = |arguments: &[&str]| -> Value {
        let out = sandbox.run(&[&["tokenize", "--json", "-m", &model], arguments].concat()).ok();
        serde_json::from_str::<Value>(&out).unwrap()["ids"].clone()
    };
    assert_eq!(ids(&["a<end>"]), json!([0, 4]));
    assert_ne!(ids(&["--plain", "a<end>"]), json!([0, 4]));
}

#[test]
fn text_that_is_not_utf8_or_not_there_is_an_error_with_a_hint() {
    let (sandbox, model) = with_model();
    let err = sandbox.run_with_input(&["tokenize", "-m", &model], b"\xff\xfe").failed();
    assert!(err.contains("standard input is not UTF-8 text") && err.contains("hint:"), "{err}");
    let err = sandbox.run(&["tokenize", "-m", &model, "--file", "missing.txt"]).failed();
    assert!(err.contains("could not read missing.txt") && err.contains("hint:"), "{err}");
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    let (sandbox, model) = with_model();
    let text = sandbox.write("long", "ab b ".repeat(100_000).as_bytes());
    let mut command = sandbox.command(&["tokenize", "-m", &model, "--file", &text]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
