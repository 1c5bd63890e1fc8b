//! Responses that are kept: looked at, gone on from, referred to, deleted.

use std::sync::Arc;

use ropeway_server::App;
use serde_json::{Value, json};

use crate::support::{app, get, send, text};
use crate::{ask, delete, events, fine, id, responses};

#[tokio::test]
async fn a_response_is_found_as_it_was_given_until_it_is_deleted() {
    let Some(app) = app(|_| ()) else { return };
    for stream in [false, true] {
        let answer =
            text(send(&app, responses(&[], &json!({"stream": stream, "metadata": {"a": "b"}}))).await).await;
        let given = if stream {
            events(&answer).pop().expect("an event")["response"].take()
        } else {
            serde_json::from_str(&answer).expect("JSON")
        };
        let path = format!("/v1/responses/{}", id(&given));
        assert_eq!(fine(&app, get(&path, &[])).await, given);
        let (status, error) = ask(&app, get(&format!("{path}?stream=true"), &[])).await;
        assert_eq!((status, &error["error"]["param"]), (400, &json!("stream")));
        let deleted = fine(&app, delete(&path, &[])).await;
        assert_eq!((&deleted["object"], &deleted["deleted"]), (&json!("response"), &json!(true)));
        for request in [get(&path, &[]), delete(&path, &[]), get(&format!("{path}/input_items"), &[])] {
            let (status, error) = ask(&app, request).await;
            assert_eq!(status, 404);
            assert!(
                error["error"]["message"].as_str().is_some_and(|text| text.contains("not found")),
                "{error}"
            );
        }
    }
}

#[tokio::test]
async fn a_response_without_store_is_nowhere() {
    let Some(app) = app(|_| ()) else { return };
    let given = fine(&app, responses(&[], &json!({"store": false}))).await;
    assert_eq!(given["store"], false);
    assert_eq!(ask(&app, get(&format!("/v1/responses/{}", id(&given)), &[])).await.0, 404);
    let (status, error) = ask(&app, responses(&[], &json!({"previous_response_id": id(&given)}))).await;
    assert_eq!((status, &error["error"]["code"]), (400, &json!("previous_response_not_found")));
    assert_eq!(error["error"]["param"], "previous_response_id");
}

/// What three turns read and wrote.
struct Turns {
    whole: Vec<Value>,
    input_tokens: Vec<u64>,
}

/// Three turns, the input of each made from what was said so far and what is new.
async fn turns(app: &Arc<App>, input: impl Fn(&[Value], &Value, Option<&str>) -> Value) -> Turns {
    let (mut whole, mut input_tokens, mut last) = (Vec::new(), Vec::new(), None::<String>);
    for question in ["Hello", "And then?", "Why is that so?"] {
        let new = json!({"role": "user", "content": question});
        let mut body = input(&whole, &new, last.as_deref());
        body["instructions"] = "Be brief.".into();
        let given = fine(app, responses(&[], &body)).await;
        whole.push(new);
        whole.extend(given["output"].as_array().expect("a list").iter().cloned());
        input_tokens.push(given["usage"]["input_tokens"].as_u64().expect("a count"));
        last = Some(id(&given).to_owned());
    }
    Turns { whole, input_tokens }
}

#[tokio::test]
async fn every_way_to_go_on_is_the_same_prompt() {
    let Some(app) = app(|_| ()) else { return };
    let sent = turns(&app, |whole, new, _| {
        let all = [whole, std::slice::from_ref(new)].concat();
        json!({"input": all})
    })
    .await;
    assert!(sent.input_tokens.is_sorted_by(|one, other| one < other), "{:?}", sent.input_tokens);
    let by_previous = turns(&app, |_, new, last| json!({"input": [new], "previous_response_id": last})).await;
    let by_reference = turns(&app, |whole, new, _| {
        let known = whole.iter().map(|item| match item["id"].as_str() {
            Some(id) => json!({"type": "item_reference", "id": id}),
            None => item.clone(),
        });
        json!({"input": known.chain([new.clone()]).collect::<Vec<_>>()})
    })
    .await;
    let conversation = fine(&app, crate::support::post("/v1/conversations", &[], &json!({}))).await;
    let by_conversation =
        turns(&app, |_, new, _| json!({"input": [new], "conversation": id(&conversation)})).await;
    for other in [by_previous, by_reference, by_conversation] {
        assert_eq!(other.input_tokens, sent.input_tokens);
        assert_eq!(other.whole.len(), sent.whole.len());
    }
}

#[tokio::test]
async fn instructions_are_those_of_the_request_alone() {
    let Some(app) = app(|_| ()) else { return };
    let first =
        fine(&app, responses(&[], &json!({"instructions": "Speak of nothing but ropes.", "store": true})))
            .await;
    let go_on = |more: Value| {
        let mut body = json!({"previous_response_id": id(&first)});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        responses(&[], &body)
    };
    let without = fine(&app, go_on(json!({}))).await;
    assert!(without["instructions"].is_null());
    let with = fine(&app, go_on(json!({"instructions": "Speak of nothing but ropes."}))).await;
    let tokens = |body: &Value| body["usage"]["input_tokens"].as_u64().expect("a count");
    // The template has a system message of its own where there is none.
    assert_ne!(tokens(&with), tokens(&without));
}

#[tokio::test]
async fn pages_of_input_items_are_the_whole_list_in_either_order() {
    let Some(app) = app(|_| ()) else { return };
    let input: Vec<Value> = (0..7).map(|n| json!({"role": "user", "content": format!("part {n}")})).collect();
    let given = fine(&app, responses(&[], &json!({"input": input}))).await;
    let path = format!("/v1/responses/{}/input_items", id(&given));
    let text_of = |item: &Value| item["content"][0]["text"].as_str().expect("text").to_owned();
    for order in ["asc", "desc"] {
        let mut expected: Vec<String> = (0..7).map(|n| format!("part {n}")).collect();
        if order == "desc" {
            expected.reverse();
        }
        for limit in 1..=8 {
            let (mut got, mut after) = (Vec::new(), String::new());
            loop {
                let page = fine(&app, get(&format!("{path}?order={order}&limit={limit}{after}"), &[])).await;
                let data = page["data"].as_array().expect("a list");
                assert!(data.len() <= limit && page["first_id"] == data[0]["id"]);
                got.extend(data.iter().map(text_of));
                if page["has_more"] == false {
                    break;
                }
                after = format!("&after={}", page["last_id"].as_str().expect("an id"));
            }
            assert_eq!(got, expected, "{order} {limit}");
        }
    }
    for wrong in ["limit=0", "limit=101", "limit=x", "order=up", "after=msg_none"] {
        assert_eq!(ask(&app, get(&format!("{path}?{wrong}"), &[])).await.0, 400, "{wrong}");
    }
}

#[tokio::test]
async fn what_belongs_to_another_key_is_not_there() {
    let keys = "sk-alice-1\nsk-bob-1234";
    let Some(app) = app(|app| app.guard.keys = keys.parse().expect("keys")) else { return };
    let (alice, bob) = ([("x-api-key", "sk-alice-1")], [("x-api-key", "sk-bob-1234")]);
    let given = fine(&app, responses(&alice, &json!({}))).await;
    let (response, item) = (id(&given), id(&given["output"][0]));
    let made = fine(&app, crate::support::post("/v1/conversations", &alice, &json!({}))).await;
    let (path, conversation) =
        (format!("/v1/responses/{response}"), format!("/v1/conversations/{}", id(&made)));
    let empty = json!({});
    let requests = || {
        [
            get(&path, &bob),
            get(&format!("{path}/input_items"), &bob),
            delete(&path, &bob),
            crate::support::post(&format!("{path}/cancel"), &bob, &empty),
            get(&conversation, &bob),
            get(&format!("{conversation}/items"), &bob),
            delete(&conversation, &bob),
            crate::support::post(&conversation, &bob, &empty),
            crate::support::post(&format!("{conversation}/items"), &bob, &json!({"items": []})),
            responses(&bob, &json!({"conversation": id(&made)})),
            responses(&bob, &json!({"input": [{"type": "item_reference", "id": item}]})),
        ]
    };
    for request in requests() {
        let about = format!("{} {}", request.method(), request.uri());
        let (status, error) = ask(&app, request).await;
        assert_eq!(status, 404, "{about}: {error}");
    }
    let (status, error) = ask(&app, responses(&bob, &json!({"previous_response_id": response}))).await;
    assert_eq!((status, &error["error"]["code"]), (400, &json!("previous_response_not_found")));
    let own = json!({"previous_response_id": response, "input": [{"type": "item_reference", "id": item}]});
    fine(&app, responses(&alice, &own)).await;
    fine(&app, delete(&conversation, &alice)).await;
    fine(&app, delete(&path, &alice)).await;
}
