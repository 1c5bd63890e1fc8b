//! Row 2: bodies that become many times as large in memory.

use crate::attacks::{self, MANY_ZEROS};
use crate::client::read;
use crate::home::{client, open_server};
use crate::names::MEMORY_IN_FLIGHT_MB;
use crate::{memory, my_turn};

/// What a body may cost, in multiples of its size.
const MOST_OF_A_BODY: f64 = 4.0;

/// What everything else may cost meanwhile, in MB: keys and values that are first used, buffers of connections.
const BESIDE_MB: f64 = 100.0;

/// Clients who send one at once.
const CLIENTS: usize = 8;

/// Bodies and where they go: routes that want tokens, and one that wants anything else.
fn large_bodies() -> [(&'static str, Vec<u8>); 3] {
    [
        ("/v1/completions", attacks::many_tokens()),
        ("/detokenize", attacks::many_ids()),
        ("/v1/chat/completions", attacks::many_zeros()),
    ]
}

#[test]
fn a_body_costs_no_more_than_four_times_its_size() {
    let _turn = my_turn();
    let Some(server) = open_server() else { return };
    let client = client(&server);
    assert!(client.first_token(&[]).is_ok());
    let most = MOST_OF_A_BODY * MANY_ZEROS as f64 / 1e6 + BESIDE_MB;
    for (path, body) in large_bodies() {
        let memory = memory::during(&server, || {
            let answer = read(client.send("POST", path, &[], &body));
            // Tokens that all are some may be turned into text; every other body is wrong.
            let expected = answer.status == 200 || (400..500).contains(&answer.status);
            assert!(expected, "{path}: {} {}", answer.status, answer.body);
        });
        println!("row 2, {path}: {memory:?}");
        assert!(memory.growth() < most, "{path}: {memory:?}");
    }
}

#[test]
fn any_number_of_bodies_stays_within_the_bound_and_chats_are_answered() {
    let _turn = my_turn();
    let Some(server) = open_server() else { return };
    let client = client(&server);
    assert!(client.first_token(&[]).is_ok());
    let bodies = large_bodies();
    let memory = memory::during(&server, || {
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let (client, (path, body)) = (&client, &bodies[number % bodies.len()]);
                scope.spawn(move || {
                    let answer = read(client.send("POST", path, &[], body));
                    assert!(!answer.is_failure(), "{path}: {} {}", answer.status, answer.body);
                });
            }
            assert!(client.first_token(&[]).is_ok(), "a chat beside the attack");
        });
    });
    println!("row 2, {CLIENTS} clients: {memory:?}");
    assert!(memory.growth() < MEMORY_IN_FLIGHT_MB + BESIDE_MB, "{memory:?}");
}
