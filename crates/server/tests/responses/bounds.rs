//! What there is no room for is forgotten, the longest unused first, and the answer says so.

use ropeway_server::openai::store::{Bound, Bounds, Store};
use serde_json::json;

use crate::support::{app, get};
use crate::{ask, fine, id, responses};

fn bounded(objects: usize, bytes: usize) -> Store {
    let all = Bound { objects: 100, bytes: 1 << 20, background: 1 };
    Store::new(Bounds { tenant: Bound { objects, bytes, background: 1 }, all, age: 1000 })
}

#[tokio::test]
async fn the_longest_unused_response_makes_room() {
    let Some(app) = app(|app| app.responses = bounded(2, 1 << 20)) else { return };
    let first = fine(&app, responses(&[], &json!({}))).await;
    let second = fine(&app, responses(&[], &json!({}))).await;
    let path = |body| format!("/v1/responses/{}", id(body));
    fine(&app, get(&path(&first), &[])).await;
    let third = fine(&app, responses(&[], &json!({}))).await;
    assert_eq!(ask(&app, get(&path(&second), &[])).await.0, 404);
    for kept in [&first, &third] {
        fine(&app, get(&path(kept), &[])).await;
    }
    let (status, error) = ask(&app, responses(&[], &json!({"previous_response_id": id(&second)}))).await;
    assert_eq!((status, &error["error"]["code"]), (400, &json!("previous_response_not_found")));
    let message = error["error"]["message"].as_str().expect("a message");
    assert!(message.contains("Send the whole conversation"), "{message}");
}

#[tokio::test]
async fn a_response_whose_first_turns_are_forgotten_still_knows_them() {
    let Some(app) = app(|app| app.responses = bounded(1, 1 << 20)) else { return };
    let mut last = fine(&app, responses(&[], &json!({}))).await;
    let first = id(&last).to_owned();
    for _ in 0..3 {
        last = fine(&app, responses(&[], &json!({"previous_response_id": id(&last)}))).await;
    }
    assert_eq!(ask(&app, get(&format!("/v1/responses/{first}"), &[])).await.0, 404);
    let items = fine(&app, get(&format!("/v1/responses/{}/input_items", id(&last)), &[])).await;
    assert_eq!(items["data"].as_array().map(Vec::len), Some(7), "four questions, three answers");
}

#[tokio::test]
async fn an_input_that_is_too_large_to_keep_says_how_to_go_on_without() {
    let Some(app) = app(|app| app.responses = bounded(8, 1000)) else { return };
    let long = "word ".repeat(300);
    let (status, error) = ask(&app, responses(&[], &json!({"input": long}))).await;
    assert_eq!((status, &error["error"]["param"]), (413, &json!("input")));
    assert!(
        error["error"]["message"].as_str().is_some_and(|text| text.contains("\"store\": false")),
        "{error}"
    );
    fine(&app, responses(&[], &json!({"input": long, "store": false}))).await;
    fine(&app, responses(&[], &json!({"input": "short"}))).await;
}
