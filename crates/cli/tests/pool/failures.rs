//! What goes wrong between a server and its upstreams, and what clients and operators see of it.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::proxy::{Fault, Proxy};
use super::support::server::{Server, until};
use super::{WRONG_KEY, front, greedy, text, upstream, upstreams, with_tokenizer};

/// Two upstreams, the first one behind a proxy, and a server in front of both.
struct Stage {
    behind: [Server; 2],
    proxy: Proxy,
    front: Server,
}

fn stage(table: &str) -> Stage {
    let behind = [upstream(&[]), upstream(&[])];
    let proxy = Proxy::before(behind[0].address);
    let front = front(&[proxy.url(), behind[1].url()], &format!("{}\n{table}", with_tokenizer()), &[]);
    Stage { behind, proxy, front }
}

impl Stage {
    /// Asks until the faulty upstream failed; every answer must be right.
    fn ask_through_faults(&self) {
        let errors = || self.front.count("upstream_errors_total", "upstream=\"u0\"");
        let before = errors();
        for round in 0..16 {
            // Several at once, so that both upstreams are asked.
            thread::scope(|scope| {
                for number in 0..4 {
                    scope.spawn(move || {
                        let body = greedy(4 * round + number, 60);
                        assert_eq!(text(&self.front, &body), text(&self.behind[1], &body));
                    });
                }
            });
            if errors() > before {
                return;
            }
        }
        panic!("the faulty upstream never failed: {}", upstreams(&self.front));
    }
}

#[test]
fn answers_go_on_elsewhere_when_connections_are_cut_or_reset_before_and_after_the_first_token() {
    let stage = stage("");
    for fault in [Fault::CutAfter(0), Fault::ResetAfter(0), Fault::CutAfter(2000), Fault::ResetAfter(3000)] {
        until("both are up", || {
            let all = upstreams(&stage.front);
            all["upstreams"].as_array().unwrap().iter().all(|one| one["models"][0]["up"] == true)
        });
        stage.proxy.set(fault);
        stage.ask_through_faults();
        stage.proxy.set(Fault::None);
    }
    let moved = stage.front.count("upstream_moved_total", "");
    let retried = stage.front.count("upstream_retries_total", "");
    assert!(moved > 0 && retried > 0, "{moved} moved, {retried} tried again");
}

#[test]
fn an_upstream_that_falls_silent_is_left_after_the_time_between_tokens() {
    let stage = stage("token-timeout = 1\nfirst-token-timeout = 1");
    stage.proxy.set(Fault::StallAfter(2000));
    stage.ask_through_faults();
}

#[test]
fn a_slow_network_changes_no_answer() {
    let stage = stage("");
    stage.proxy.set(Fault::Delay(Duration::from_millis(2)));
    for number in 0..4 {
        let body = greedy(number, 30);
        assert_eq!(text(&stage.front, &body), text(&stage.behind[1], &body));
    }
}

/// What a front says about its only upstream once it has tried.
fn reason(front: &Server) -> String {
    until("the upstream was tried", || upstreams(front)["upstreams"][0]["state"] != "trying");
    upstreams(front)["upstreams"][0]["reason"].as_str().unwrap_or_default().to_owned()
}

fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn an_upstream_that_can_not_be_reached_is_told_of_and_its_model_is_a_503() {
    let front = front(&[format!("http://{}", nobody())], "models = [\"llama\"]", &[]);
    assert!(reason(&front).contains("can't be reached"), "{}", reason(&front));
    let (status, answer) = front.post("/v1/completions", greedy(1, 4).to_string());
    assert_eq!(status, 503, "{answer}");
    let (status, _) = front.request("GET", "/health/ready", "");
    assert_eq!(status, 503);
}

#[test]
fn an_upstream_may_come_later_than_the_server_in_front_of_it() {
    let address = nobody();
    let front = front(&[format!("http://{address}")], &with_tokenizer(), &[]);
    assert!(reason(&front).contains("can't be reached"));
    let behind = upstream(&["--listen", &address.to_string()]);
    until("it is found", || upstreams(&front)["upstreams"][0]["state"] == "up");
    let body = greedy(1, 10);
    assert_eq!(text(&front, &body), text(&behind, &body));
}

#[test]
fn a_wrong_key_is_told_as_such_and_never_shown() {
    let behind = upstream(&["--api-key", "right-key-0123456789"]);
    let front = front(&[behind.url()], "key-file = \"wrong.key\"", &[]);
    let reason = reason(&front);
    assert!(reason.contains("refuses the key"), "{reason}");
    assert!(!upstreams(&front).to_string().contains(WRONG_KEY));
}

#[test]
fn an_upstream_that_answers_web_pages_is_told_as_such() {
    let behind = upstream(&[]);
    let proxy = Proxy::before(behind.address);
    proxy.set(Fault::Page);
    let front = front(&[proxy.url()], "", &[]);
    assert!(reason(&front).contains("does not answer as"), "{}", reason(&front));
}

#[test]
fn a_tls_address_that_speaks_plain_http_is_told_as_such() {
    let behind = upstream(&[]);
    let front = front(&[behind.url().replace("http", "https")], "", &[]);
    assert!(reason(&front).contains("TLS"), "{}", reason(&front));
}

#[test]
fn of_different_context_lengths_the_smallest_counts() {
    let (large, small) = (upstream(&[]), upstream(&["--context", "64"]));
    let front = front(&[large.url(), small.url()], &with_tokenizer(), &[]);
    let (_, models) = front.request("GET", "/v1/models", "");
    let models: Value = serde_json::from_str(&models).unwrap();
    assert_eq!(models["data"][0]["max_model_len"], 64);
    let prompt: Vec<u32> = (10..110).collect();
    let (status, answer) =
        front.post("/v1/completions", json!({"model": "m", "prompt": prompt, "max_tokens": 4}).to_string());
    assert!(status == 400 && answer.contains("64"), "{answer}");
}

#[test]
fn when_all_upstreams_are_gone_waiting_requests_are_told_so() {
    let behind = upstream(&[]);
    let front = front(&[behind.url()], &with_tokenizer(), &[]);
    text(&front, &greedy(1, 4));
    behind.signal("KILL");
    drop(behind);
    let mut answer = String::new();
    front.send("/v1/completions", greedy(2, 4).to_string()).read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 503 ") && answer.to_lowercase().contains("retry-after"), "{answer}");
}
