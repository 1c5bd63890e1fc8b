//! Conversations: made, changed, filled by hand and by responses, deleted.

use serde_json::{Value, json};

use crate::support::{app, get, post};
use crate::{ask, delete, fine, id, responses};

fn texts(list: &Value) -> Vec<&str> {
    let data = list["data"].as_array().expect("a list");
    data.iter().map(|item| item["content"][0]["text"].as_str().expect("text")).collect()
}

#[tokio::test]
async fn a_conversation_is_made_changed_and_deleted() {
    let Some(app) = app(|_| ()) else { return };
    let items = json!([{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]);
    let made =
        fine(&app, post("/v1/conversations", &[], &json!({"items": items, "metadata": {"a": "b"}}))).await;
    assert_eq!((&made["object"], &made["metadata"]), (&json!("conversation"), &json!({"a": "b"})));
    let path = format!("/v1/conversations/{}", id(&made));
    assert_eq!(fine(&app, get(&path, &[])).await, made);
    let changed = fine(&app, post(&path, &[], &json!({"metadata": {"c": "d"}}))).await;
    assert_eq!(changed["metadata"], json!({"c": "d"}));
    let added = json!({"items": [{"type": "message", "role": "user", "content": "three"}]});
    let added = fine(&app, post(&format!("{path}/items"), &[], &added)).await;
    assert_eq!(texts(&added), ["three"]);
    let listed = fine(&app, get(&format!("{path}/items?order=asc"), &[])).await;
    assert_eq!(texts(&listed), ["one", "two", "three"]);
    let item = format!("{path}/items/{}", id(&listed["data"][1]));
    assert_eq!(fine(&app, get(&item, &[])).await, listed["data"][1]);
    assert_eq!(id(&fine(&app, delete(&item, &[])).await), id(&made));
    for request in [get(&item, &[]), delete(&item, &[])] {
        assert_eq!(ask(&app, request).await.0, 404);
    }
    assert_eq!(fine(&app, delete(&path, &[])).await["deleted"], true);
    for request in [
        get(&path, &[]),
        delete(&path, &[]),
        get(&format!("{path}/items"), &[]),
        post(&path, &[], &json!({})),
    ] {
        let (status, error) = ask(&app, request).await;
        assert!(
            status == 404
                && error["error"]["message"].as_str().is_some_and(|text| text.contains("Conversation"))
        );
    }
}

#[tokio::test]
async fn responses_add_their_turns_to_a_conversation() {
    let Some(app) = app(|_| ()) else { return };
    let made = fine(&app, post("/v1/conversations", &[], &json!({}))).await;
    for (store, conversation) in [(true, made["id"].clone()), (false, json!({"id": made["id"]}))] {
        let body = json!({"conversation": conversation, "store": store});
        let given = fine(&app, responses(&[], &body)).await;
        assert_eq!(given["conversation"], json!({"id": made["id"]}));
    }
    let listed = fine(&app, get(&format!("/v1/conversations/{}/items?order=asc", id(&made)), &[])).await;
    let roles: Vec<_> = listed["data"].as_array().expect("a list").iter().map(|item| &item["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    let (status, error) = ask(&app, responses(&[], &json!({"conversation": "conv_none"}))).await;
    assert_eq!((status, &error["error"]["param"]), (404, &json!("conversation")));
    let both = json!({"conversation": made["id"], "previous_response_id": "resp_1"});
    assert_eq!(ask(&app, responses(&[], &both)).await.0, 400);
}

#[tokio::test]
async fn what_is_no_conversation_is_refused() {
    let Some(app) = app(|_| ()) else { return };
    for (wrong, field) in [
        (json!({"metadata": {"a": 1}}), "metadata"),
        (json!({"items": ["text"]}), "input.0"),
        (json!({"items": vec![json!({"role": "user", "content": "x"}); 21]}), "items"),
        (json!({"items": [{"type": "item_reference", "id": "msg_none"}]}), "input.0"),
    ] {
        let (status, error) = ask(&app, post("/v1/conversations", &[], &wrong)).await;
        assert!(status == 400 || status == 404, "{error}");
        assert_eq!(error["error"]["param"], field);
    }
    assert_eq!(ask(&app, responses(&[], &json!({"conversation": 5}))).await.0, 400);
}

#[tokio::test]
async fn a_page_is_not_made_long_by_short_references_to_a_long_item() {
    let Some(app) = app(|_| ()) else { return };
    let long = json!({"role": "user", "content": "x".repeat(120_000)});
    let (_, made) = ask(&app, post("/v1/conversations", &[], &json!({"items": [long]}))).await;
    let path = format!("/v1/conversations/{}/items", made["id"].as_str().expect("an id"));
    let (_, first) = ask(&app, get(&path, &[])).await;
    let reference = json!({"type": "item_reference", "id": first["data"][0]["id"]});
    for _ in 0..3 {
        let (status, added) = ask(&app, post(&path, &[], &json!({"items": vec![&reference; 20]}))).await;
        assert_eq!((status, added["data"].as_array().map(Vec::len)), (200, Some(20)));
    }
    let (_, page) = ask(&app, get(&format!("{path}?limit=100"), &[])).await;
    let listed = page["data"].as_array().expect("a list").len();
    assert!((1..40).contains(&listed) && page["has_more"] == true, "{listed} of 61 items");
}
