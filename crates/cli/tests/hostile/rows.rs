//! Row 5: requests with many answers that hold all rows.

use crate::home::{client, open_server};
use crate::{attacks, my_turn};

/// As many as filled all 512 rows.
const REQUESTS: usize = 4;

#[test]
fn bulk_requests_with_many_answers_give_way_to_an_interactive_one() {
    let _turn = my_turn();
    let Some(server) = open_server() else { return };
    let client = client(&server);
    assert!(client.first_token(&[]).is_ok());
    let bulk: Vec<_> = (0..REQUESTS).map(|_| attacks::many_rows(&client)).collect();
    let first = client.first_token(&[("x-priority", "interactive")]);
    println!("row 5: first token after {first:?}");
    assert!(first.is_ok(), "an interactive request beside {REQUESTS} bulk ones: {first:?}");
    drop(bulk);
}
