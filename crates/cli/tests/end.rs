//! A process that is told to end ends, whatever it waits for. The time that a source may be silent is an hour in these tests and
//! the drain time an hour or a second: an end that comes was not one of those.

#[path = "../../../tests/default_models.rs"]
mod default_models;
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::json;
use support::Sandbox;
use support::server::{Server, SilentHub, answer, signal, until, wait};

const AN_HOUR: (&str, &str) = ("ROPEWAY_PULL_TIMEOUT", "3600");

/// A server of the default model that drains for so many seconds and whose hub never answers.
fn server(drain: &str, hub: &SilentHub) -> Option<Server> {
    let model = default_models::smollm2()?;
    let environment = [AN_HOUR, ("HF_ENDPOINT", hub.url.as_str())];
    let more = ["--drain-timeout", drain, "--kv-memory", "32MiB"];
    Some(Server::start_in(Sandbox::new(), model.to_str()?, &more, &environment))
}

/// A stream that goes on for longer than the test and is never read.
fn endless_answer(server: &Server) -> std::net::TcpStream {
    let body =
        json!({"model": "m", "prompt": "Once", "max_tokens": 2000, "ignore_eos": true, "stream": true});
    let stream = server.send("/v1/completions", body.to_string());
    until("it is being answered", || server.running() > 0);
    stream
}

#[test]
fn a_server_ends_while_it_pulls_from_a_silent_hub() {
    let hub = SilentHub::start();
    let Some(mut server) = server("3600", &hub) else { return };
    let pulling = server.send("/api/pull", r#"{"model": "org/model"}"#);
    until("the hub was asked", || hub.asked() > 0);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0), "the drain time is not needed: pulls stop at once");
    let (status, lines) = answer(pulling);
    assert!(status == 200 && lines.contains("it goes on where it was"), "{lines}");
}

#[test]
fn a_server_ends_while_the_model_it_was_given_comes_from_a_silent_hub() {
    let (hub, sandbox) = (SilentHub::start(), Sandbox::new());
    let mut command = sandbox.command(&["serve", "--listen", "127.0.0.1:0", "--model", "org/model"]);
    command.envs([AN_HOUR, ("HF_ENDPOINT", hub.url.as_str())]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    until("the hub was asked", || hub.asked() > 0);
    signal(&child, "TERM");
    assert_eq!(wait(&mut child), Some(0));
}

#[test]
fn a_server_ends_in_spite_of_a_client_that_does_not_read_and_a_grammar_that_compiles() {
    let hub = SilentHub::start();
    let Some(mut server) = server("1", &hub) else { return };
    let _unread = endless_answer(&server);
    let schema =
        json!({"allOf": [{"type": "integer", "multipleOf": 9973}, {"type": "integer", "multipleOf": 9967}]});
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "7"}], "guided_json": schema});
    let _compiling = server.send("/v1/chat/completions", body.to_string());
    let _tokenised = server.send("/tokenize", json!({"prompt": "ab ".repeat(1 << 20)}).to_string());
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_second_signal_ends_a_server_at_once() {
    let hub = SilentHub::start();
    for (second, code) in [("TERM", 143), ("INT", 130)] {
        let Some(mut server) = server("3600", &hub) else { return };
        let _unread = endless_answer(&server);
        server.signal("TERM");
        until("it takes no more connections", || std::net::TcpStream::connect(server.address).is_err());
        server.signal(second);
        assert_eq!(server.wait(), Some(code), "{second}");
    }
}

/// A Python that notes its process and hangs.
fn hanging_python(sandbox: &Sandbox) -> String {
    let path =
        sandbox.write("python", b"#!/bin/sh\necho $$ >\"$(dirname \"$0\")/pid\"\nexec tail -f /dev/null\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn process_of(sandbox: &Sandbox) -> Option<String> {
    let pid = fs::read_to_string(sandbox.path("pid")).ok()?;
    pid.ends_with('\n').then(|| format!("/proc/{}", pid.trim()))
}

#[test]
fn a_server_that_ends_leaves_no_pip_behind() {
    let Some(model) = default_models::smollm2() else { return };
    let sandbox = Sandbox::new();
    let python = hanging_python(&sandbox);
    let environment = [AN_HOUR, ("ROPEWAY_PYTHON", python.as_str())];
    let more = ["--drain-timeout", "3600", "--kv-memory", "32MiB"];
    let mut server = Server::start_in(sandbox, model.to_str().unwrap(), &more, &environment);
    let _pulling = server.send("/api/pull", r#"{"model": "smollm2"}"#);
    until("pip runs", || process_of(&server.sandbox).is_some());
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    assert!(!fs::exists(process_of(&server.sandbox).unwrap()).unwrap());
}

#[test]
fn a_pull_is_given_up_at_the_first_signal_and_says_which() {
    let sandbox = Sandbox::new();
    let python = hanging_python(&sandbox);
    for (name, code) in [("TERM", 143), ("INT", 130)] {
        let mut command = sandbox.command(&["pull", "smollm2"]);
        command.envs([AN_HOUR, ("ROPEWAY_PYTHON", python.as_str())]).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        until("pip runs", || process_of(&sandbox).is_some());
        let process = process_of(&sandbox).unwrap();
        signal(&child, name);
        assert_eq!(wait(&mut child), Some(code));
        assert!(!fs::exists(process).unwrap());
        fs::remove_file(sandbox.path("pid")).unwrap();
    }
    // Nothing is locked by what ended.
    let err = sandbox.run(&["pull", "smollm2"]).failed();
    assert!(err.contains("no Python with pip"), "{err}");
}
