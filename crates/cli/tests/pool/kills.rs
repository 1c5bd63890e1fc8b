//! Upstreams that are killed under running streams: every stream goes on elsewhere and ends as if nothing had happened.

use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::server::{Server, until};
use super::{front, greedy, text, upstream, upstreams, with_tokenizer};

/// Clients that stream at once.
const CLIENTS: usize = 50;

/// Tokens of every answer.
const TOKENS: usize = 100;

/// Times that an upstream is killed.
const KILLS: usize = 10;

/// What a client got.
struct Stream {
    text: String,
    finish: Option<String>,
    /// Longest time without a piece.
    gap: Duration,
}

/// Streams an answer; `pieces` counts those of all clients.
fn stream(server: &Server, body: &Value, pieces: &AtomicUsize) -> Stream {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let mut lines = BufReader::new(server.send("/v1/completions", body.to_string())).lines();
    let status = lines.next().unwrap().unwrap();
    assert!(status.contains(" 200 "), "{status}");
    let (mut text, mut finish, mut gap, mut last) = (String::new(), None, Duration::ZERO, Instant::now());
    for line in lines.map_while(Result::ok) {
        let Some(data) = line.strip_prefix("data: ").filter(|data| *data != "[DONE]") else { continue };
        let chunk: Value = serde_json::from_str(data).unwrap();
        assert!(chunk.get("error").is_none(), "{chunk}");
        gap = gap.max(last.elapsed());
        last = Instant::now();
        pieces.fetch_add(1, Ordering::Relaxed);
        let choice = &chunk["choices"][0];
        text.push_str(choice["text"].as_str().unwrap_or_default());
        finish = choice["finish_reason"].as_str().map(str::to_owned).or(finish);
    }
    Stream { text, finish, gap }
}

/// All clients stream at once, and an upstream is killed in the middle.
fn round(front: &Server, expected: &[String], victim: Server) -> Duration {
    let (pieces, start) = (Arc::new(AtomicUsize::new(0)), Barrier::new(CLIENTS + 1));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (pieces, start) = (&pieces, &start);
                scope.spawn(move || {
                    start.wait();
                    stream(front, &greedy(number as u32, TOKENS), pieces)
                })
            })
            .collect();
        start.wait();
        until("half of the first tokens are there", || pieces.load(Ordering::Relaxed) > CLIENTS * TOKENS / 4);
        victim.signal("KILL");
        drop(victim);
        let streams = clients.into_iter().map(|client| client.join().unwrap());
        let gaps = streams.enumerate().map(|(number, stream)| {
            assert_eq!(stream.text, expected[number], "client {number}");
            assert_eq!(stream.finish.as_deref(), Some("length"), "client {number}");
            stream.gap
        });
        gaps.max().unwrap()
    })
}

/// How often streams went on elsewhere.
fn moved(front: &Server) -> u64 {
    front.count("upstream_moved_total", "")
}

#[test]
fn no_stream_ends_and_no_token_is_doubled_or_missing_when_an_upstream_is_killed() {
    let mut servers = [Some(upstream(&[])), Some(upstream(&[]))];
    let ports = servers.each_ref().map(|server| server.as_ref().unwrap().address);
    let front = front(&ports.map(|address| format!("http://{address}")), &with_tokenizer(), &[]);
    let expected: Vec<_> = (0..CLIENTS)
        .map(|number| text(servers[0].as_ref().unwrap(), &greedy(number as u32, TOKENS)))
        .collect();
    let (mut longest, mut in_the_middle) = (Duration::ZERO, 0);
    for kill in 0..KILLS {
        let before = moved(&front);
        let victim = servers[kill % 2].take().unwrap();
        longest = longest.max(round(&front, &expected, victim));
        in_the_middle += moved(&front) - before;
        servers[kill % 2] = Some(upstream(&["--listen", &ports[kill % 2].to_string()]));
        until("the upstream is back", || {
            let all = upstreams(&front);
            all["upstreams"].as_array().unwrap().iter().all(|one| one["models"][0]["up"] == true)
        });
    }
    println!(
        "{KILLS} kills, {in_the_middle} streams moved, longest gap {:.0} ms",
        longest.as_secs_f64() * 1e3
    );
    assert!(in_the_middle > 0, "no stream was at a killed upstream: the test saw nothing");
}
