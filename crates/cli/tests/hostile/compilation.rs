//! Row 1: a request of 120 bytes that compiles without end.

use serde_json::json;

use crate::client::read;
use crate::home::{client, open_server};
use crate::memory;
use crate::names::MEMORY_IN_FLIGHT_MB;
use crate::{attacks, my_turn};

/// What compiling may hold besides what is in flight, in MB: two grammars at once, and what the allocator keeps of them.
const COMPILERS_MB: f64 = 300.0;

/// A grammar as programs use it.
fn honest() -> serde_json::Value {
    json!({
        "messages": [{"role": "user", "content": "How old is Ann, who was born in 1990?"}], "max_tokens": 24,
        "guided_json": {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]},
    })
}

#[test]
fn grammars_that_never_end_are_turned_down_and_hold_up_nobody() {
    let _turn = my_turn();
    let Some(server) = open_server() else { return };
    let client = client(&server);
    assert_eq!(client.post("/v1/chat/completions", &honest()).status, 200);
    let memory = memory::during(&server, || {
        let grammars = attacks::endless_grammars();
        let sent: Vec<_> =
            grammars.iter().map(|grammar| attacks::compile_without_end(&client, grammar)).collect();
        let beside = client.post("/v1/chat/completions", &honest());
        assert_eq!(beside.status, 200, "a schema beside the attack: {}", beside.body);
        assert!(client.first_token(&[]).is_ok(), "a chat beside the attack");
        for (grammar, stream) in grammars.iter().zip(sent) {
            let answer = read(stream);
            // One that turns out to be cheap is compiled; none is a failure of the server.
            assert!(
                matches!(answer.status, 200 | 400 | 422 | 503),
                "{grammar}: {} {}",
                answer.status,
                answer.body
            );
        }
    });
    println!("row 1: {memory:?}");
    assert!(memory.growth() < MEMORY_IN_FLIGHT_MB + COMPILERS_MB, "{memory:?}");
}

#[test]
fn a_compilation_ends_when_its_client_leaves() {
    let _turn = my_turn();
    let Some(server) = open_server() else { return };
    let client = client(&server);
    for grammar in attacks::endless_grammars() {
        drop(attacks::compile_without_end(&client, &grammar));
    }
    let after = client.post("/v1/chat/completions", &honest());
    assert_eq!(after.status, 200, "a schema after the attackers left: {}", after.body);
}
