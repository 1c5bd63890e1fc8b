//! A client that leaves, in every state and in every API family, over real sockets: its place and its blocks are free
//! at the next step. On the default model, which is slow enough to be caught in every state.

#[path = "../../../tests/default_models.rs"]
mod default_models;
mod support;

use std::net::TcpStream;

use serde_json::{Value, json};
use support::server::{Server, until};

/// Steps between a disconnect and the last block's return: the one that runs, and those that pass until the server
/// hears of it.
const FEW_STEPS: u64 = 4;

/// One of the APIs: how a text is asked for.
#[derive(Clone, Copy, Debug)]
enum Family {
    OpenAi,
    Anthropic,
    Ollama,
    Generate,
}

const FAMILIES: [Family; 4] = [Family::OpenAi, Family::Anthropic, Family::Ollama, Family::Generate];

/// How the answer is delivered.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Delivery {
    Streamed,
    Whole,
}

impl Family {
    /// Asks to continue a text unlike any other of `words` words.
    fn ask(self, server: &Server, words: usize, delivery: Delivery) -> TcpStream {
        let (text, new, stream) = (unlike_any_other(words), 200, delivery == Delivery::Streamed);
        let messages = json!([{"role": "user", "content": text}]);
        let (path, body) = match self {
            Family::OpenAi => (
                "/v1/chat/completions",
                json!({"messages": messages, "max_tokens": new, "ignore_eos": true, "stream": stream}),
            ),
            Family::Anthropic => (
                "/v1/messages",
                json!({"model": "m", "messages": messages, "max_tokens": new, "stream": stream}),
            ),
            Family::Ollama => (
                "/api/chat",
                json!({"model": "m", "messages": messages, "options": {"num_predict": new}, "stream": stream}),
            ),
            Family::Generate => {
                let path = if stream { "/generate/stream" } else { "/generate" };
                (path, json!({"prompt": text, "max_tokens": new}))
            }
        };
        server.send(path, Value::to_string(&body))
    }
}

/// A text whose beginning no cache knows.
fn unlike_any_other(words: usize) -> String {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{number} times. {}", "the story goes on and ".repeat(words / 5))
}

/// The figures that a disconnect moves.
#[derive(Clone, Copy)]
struct Seen {
    cancelled: u64,
    generated: u64,
    steps: u64,
}

impl Seen {
    fn at(server: &Server) -> Seen {
        Seen {
            cancelled: server.count("request_success_total", "cancelled"),
            generated: server.count("generation_tokens_total", ""),
            steps: server.count("steps_total", ""),
        }
    }
}

/// Closes the connection; everything it held must be free within a few steps, and be free because it was cancelled.
fn leaves(server: &Server, stream: TcpStream, what: &str) {
    let before = Seen::at(server);
    drop(stream);
    server.settle();
    let after = Seen::at(server);
    assert_eq!(after.cancelled - before.cancelled, 1, "{what}");
    let steps = after.steps - before.steps;
    println!("{what}: free after {steps} steps");
    assert!(steps <= FEW_STEPS, "{what}: {steps} steps");
}

fn server() -> Option<Server> {
    let model = default_models::smollm2()?;
    Some(Server::start(model.to_str()?, &["--context", "2048", "--kv-memory", "48MiB"]))
}

#[test]
fn a_client_that_leaves_frees_its_blocks_in_every_state_and_family() {
    let Some(server) = server() else { return };
    for family in FAMILIES {
        let before = Seen::at(&server);
        let stream = family.ask(&server, 1200, Delivery::Streamed);
        until("a prompt is being read", || server.running() > 0);
        leaves(&server, stream, &format!("{family:?}, prefilling"));
        assert_eq!(Seen::at(&server).generated, before.generated, "{family:?} had not begun to answer");
    }
    for (family, delivery) in
        FAMILIES.iter().flat_map(|family| [(*family, Delivery::Streamed), (*family, Delivery::Whole)])
    {
        let before = Seen::at(&server);
        let stream = family.ask(&server, 5, delivery);
        until("an answer has begun", || Seen::at(&server).generated > before.generated + 1);
        leaves(&server, stream, &format!("{family:?}, {delivery:?} answer"));
    }
    queued(&server);
}

/// One request holds most of the memory; those behind it leave before they got what they need. One of them may be let in and
/// wait inside for the rest.
fn queued(server: &Server) {
    let before = Seen::at(server);
    let holder = Family::OpenAi.ask(server, 1500, Delivery::Streamed);
    until("the memory is taken", || server.running() == 1);
    let behind: Vec<_> = FAMILIES.iter().map(|family| family.ask(server, 1200, Delivery::Streamed)).collect();
    until("the others wait", || server.waiting() >= 3);
    for (stream, left) in behind.into_iter().zip((0..4).rev()) {
        drop(stream);
        until("one waits less", || server.waiting() <= left);
    }
    until("four are cancelled", || Seen::at(server).cancelled == before.cancelled + 4);
    until("who holds the memory is left", || server.running() == 1);
    leaves(server, holder, "the holder");
}
