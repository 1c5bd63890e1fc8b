//! Row 3: long work whose client is gone.

use crate::home::{client, open_server};
use crate::names::MEMORY_IN_FLIGHT_MB;
use crate::{attacks, memory, my_turn};

/// Texts sent by clients that leave at once.
const LEFT: usize = 20;

/// Threads that may be added: works at the same time, and those that wait for more of it.
const MORE_THREADS: usize = 8;

/// Tokens of two texts at once, and what the allocator keeps of them, in MB.
const WORK_MB: f64 = 300.0;

#[test]
fn work_ends_with_its_client_and_chats_go_on() {
    let _turn = my_turn();
    let Some(server) = open_server() else { return };
    let client = client(&server);
    assert!(client.first_token(&[]).is_ok());
    let threads = memory::threads(&server);
    let memory = memory::during(&server, || {
        attacks::tokenize_and_leave(&client, LEFT);
        assert!(client.first_token(&[]).is_ok(), "a chat beside the attack");
        let more = memory::threads(&server).saturating_sub(threads);
        assert!(more <= MORE_THREADS, "{more} more threads");
        // Long work of somebody else waits for its share, not for all of the attacker's.
        let long = serde_json::json!({"model": "m", "prompt": "honest words ".repeat(5000)});
        let answer = client.post("/tokenize", &long);
        assert_eq!(answer.status, 200, "{}", answer.body);
    });
    println!("row 3: {memory:?}");
    assert!(memory.growth() < MEMORY_IN_FLIGHT_MB + WORK_MB, "{memory:?}");
}
