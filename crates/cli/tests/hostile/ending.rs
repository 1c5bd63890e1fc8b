//! Row 4: an end that comes whatever is running.

use std::net::TcpListener;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::client::Client;
use crate::home::client;
use crate::support::Sandbox;
use crate::support::server::{Server, until};
use crate::{attacks, default_models, my_turn};

/// What `--drain-timeout` allows, plus the second that the end itself may take.
const DRAIN: &str = "1";
const IN_TIME: Duration = Duration::from_secs(2);

/// How much later a busy machine may notice it.
const LATE: Duration = Duration::from_secs(4);

/// Far longer than any test waits.
const LONG_DRAIN: &str = "600";

/// A hub that takes connections and never says anything.
fn silent_hub() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

/// A server that fetches models from this hub.
fn server(hub: &str, drain: &str) -> Option<Server> {
    let model = default_models::smollm2()?;
    let sandbox = Sandbox::new();
    let fixed = ["serve", "--listen", "127.0.0.1:0", "--model", model.to_str()?, "--no-embeddings"];
    let mut command = sandbox.command(&[&fixed[..], &["--drain-timeout", drain]].concat());
    command.env("HF_ENDPOINT", hub);
    Some(Server::launch(sandbox, command))
}

fn signal(server: &Server, signal: Signal) {
    kill(Pid::from_raw(server.pid() as i32), signal).unwrap();
}

fn ends_in_time(server: &mut Server, what: &str) {
    let took = server.ends_within(IN_TIME + LATE);
    println!("row 4, {what}: ended after {took:?}");
    assert!(took.is_some(), "{what}: still there {:?} after the signal", IN_TIME + LATE);
}

/// A stream of many tokens that has begun.
fn endless_stream(server: &Server, client: &Client) -> std::net::TcpStream {
    let body = json!({"prompt": "Once", "max_tokens": 2000, "ignore_eos": true, "stream": true});
    let stream = client.send("POST", "/v1/completions", &[], body.to_string().as_bytes());
    until("it runs", || server.running() > 0);
    stream
}

#[test]
fn sigterm_ends_a_server_whose_pulls_hang() {
    let _turn = my_turn();
    let (hub, url) = silent_hub();
    let Some(mut server) = server(&url, DRAIN) else { return };
    let client = client(&server);
    let pulls = (0..4).map(|number| {
        let body = json!({"model": format!("some/model{number}")}).to_string();
        client.send("POST", "/api/pull", &[], body.as_bytes())
    });
    let _pulls: Vec<_> = pulls.collect();
    let _connection = hub.accept().unwrap();
    signal(&server, Signal::SIGTERM);
    ends_in_time(&mut server, "pulls");
}

#[test]
fn sigterm_ends_a_server_whose_grammars_compile() {
    let _turn = my_turn();
    let Some(mut server) = server("http://127.0.0.1:9", DRAIN) else { return };
    let client = client(&server);
    let grammars = attacks::endless_grammars();
    let _sent: Vec<_> =
        grammars.iter().map(|grammar| attacks::compile_without_end(&client, grammar)).collect();
    signal(&server, Signal::SIGTERM);
    ends_in_time(&mut server, "grammars");
}

#[test]
fn a_second_signal_ends_a_server_at_once() {
    let _turn = my_turn();
    for second in [Signal::SIGTERM, Signal::SIGINT] {
        let Some(mut server) = server("http://127.0.0.1:9", LONG_DRAIN) else { return };
        let client = client(&server);
        let _stream = endless_stream(&server, &client);
        signal(&server, Signal::SIGTERM);
        until("it drains", || !client.can_connect());
        signal(&server, second);
        ends_in_time(&mut server, "a second signal");
    }
}
