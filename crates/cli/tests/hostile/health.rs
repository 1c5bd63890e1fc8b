//! Rows 10 and 12: what a server says about itself.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Client, new_text, read};
use crate::default_models;
use crate::home::{INSTALLED, client, server_with_store};
use crate::my_turn;
use crate::names::OPERATOR;
use crate::support::server::{Server, until};

#[test]
fn a_server_without_its_model_is_not_ready() {
    let _turn = my_turn();
    let Some(server) = server_with_store() else { return };
    let operator = client(&server).with_key(OPERATOR);
    assert_eq!(operator.get("/health").status, 200);
    assert_eq!(operator.post("/api/generate", &json!({"model": INSTALLED, "keep_alive": 0})).status, 200);
    let health = operator.get("/health");
    assert_eq!(health.status, 503, "nothing is loaded: {}", health.body);
    assert!(health.body.contains(INSTALLED), "it says which: {}", health.body);
    assert_eq!(operator.post("/api/generate", &json!({"model": INSTALLED, "stream": false})).status, 200);
    assert_eq!(operator.get("/health").status, 200, "{}", operator.get("/health").body);
}

/// A request that holds most of the memory for a while.
fn long_request(client: &Client) -> std::net::TcpStream {
    let body = json!({"prompt": new_text(60), "max_tokens": 120, "ignore_eos": true});
    client.send("POST", "/v1/completions", &[], body.to_string().as_bytes())
}

#[test]
fn a_full_queue_says_when_there_will_be_room() {
    let _turn = my_turn();
    let Some(model) = default_models::smollm2() else { return };
    // Memory for one or two at a time, and two of one client may wait: the last place is for others. Drafts would end answers
    // that repeat themselves too soon for the queue to stay full.
    let small =
        ["--context", "256", "--kv-memory", "6MiB", "--queue", "3", "--no-embeddings", "--speculate", "off"];
    let server = Server::start(model.to_str().unwrap(), &small);
    let client = client(&server);
    // Its speed is known once some have finished.
    for _ in 0..2 {
        assert_eq!(read(long_request(&client)).status, 200);
    }
    let mut ahead: Vec<_> = (0..12).map(|_| long_request(&client)).collect();
    // A place may become free between two looks.
    let refused = (0..50).find_map(|_| {
        ahead.extend((0..4).map(|_| long_request(&client)));
        std::thread::sleep(Duration::from_millis(20));
        let answer = client.post("/v1/completions", &json!({"prompt": "Hi", "max_tokens": 2}));
        (answer.status == 503).then_some(answer)
    });
    let began = Instant::now();
    let said: f64 = refused.expect("a full queue").header("retry-after").unwrap().parse().unwrap();
    until("there is room", || server.waiting() < 2);
    // How well that fits depends on the machine's other work; `queue.rs` has the sums.
    println!("row 12: retry after {said} s, room after {:.1} s", began.elapsed().as_secs_f64());
    assert!((1.0..=600.0).contains(&said), "{said} s");
    drop(ahead);
}
