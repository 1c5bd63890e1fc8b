//! Row 5: requests with many answers that hold all rows.

use crate::home::{client, tiny_server};
use crate::support::server::until;
use crate::{attacks, my_turn};

/// As many as fill all 512 rows of a step.
const REQUESTS: usize = 4;

/// Tokens of an answer: enough to be far from finished when the interactive request comes.
const TOKENS: usize = 100;

/// Tokens of all rows once each has several: before, some rows may still be free.
const ALL_BEGAN: u64 = 8 * 512;

#[test]
fn bulk_requests_with_many_answers_give_way_to_an_interactive_one() {
    let _turn = my_turn();
    let server = tiny_server();
    let client = client(&server);
    assert!(client.first_token(&[]).is_ok());
    server.settle();
    let finished = server.count("request_success_total", "");
    let bulk: Vec<_> = (0..REQUESTS).map(|_| attacks::many_rows(&client, TOKENS)).collect();
    until("every row is taken", || server.count("generation_tokens_total", "") >= ALL_BEGAN);
    let first = client.first_token(&[("x-priority", "interactive")]);
    println!("row 5: first token after {first:?}");
    assert!(first.is_ok(), "an interactive request beside {REQUESTS} bulk ones: {first:?}");
    let ended = server.count("request_success_total", "") - finished;
    assert!(ended <= 1, "it did not wait for the others to end: {ended} did");
    drop(bulk);
}
