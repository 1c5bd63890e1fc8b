//! Row 8: what a key that is no operator's can do to the models.

use serde_json::{Value, json};

use crate::client::{Answer, Client, read};
use crate::home::{INSTALLED, client, server_with_store};
use crate::my_turn;
use crate::names::{ALICE, NIGHTLY, OPERATOR};

fn delete(client: &Client) -> Answer {
    let body = json!({"model": INSTALLED}).to_string();
    read(client.send("DELETE", "/api/delete", &[], body.as_bytes()))
}

fn unload(client: &Client) -> Answer {
    client.post("/api/generate", &json!({"model": INSTALLED, "keep_alive": 0}))
}

fn load(client: &Client) -> Answer {
    client.post("/api/generate", &json!({"model": INSTALLED, "stream": false}))
}

fn chat(client: &Client) -> Answer {
    client.post("/v1/completions", &json!({"prompt": "Hi", "max_tokens": 2}))
}

#[test]
fn keys_without_rights_change_no_models() {
    let _turn = my_turn();
    let Some(server) = server_with_store() else { return };
    for key in [NIGHTLY, ALICE] {
        let client = client(&server).with_key(key);
        let attempts = [
            ("delete", delete(&client)),
            ("unload", unload(&client)),
            ("pull", client.post("/api/pull", &json!({"model": "some/model"}))),
            ("copy", client.post("/api/copy", &json!({"source": INSTALLED, "destination": "mine"}))),
        ];
        for (what, answer) in attempts {
            assert_eq!(answer.status, 403, "{key}, {what}: {}", answer.body);
        }
        assert_eq!(chat(&client).status, 200, "{key}");
    }
}

/// Until when the model stays.
fn expiry(client: &Client) -> Value {
    client.get("/api/ps").json()["models"][0]["expires_at"].clone()
}

#[test]
fn an_operators_model_stays_for_good_whoever_asks_for_it() {
    let _turn = my_turn();
    let Some(server) = server_with_store() else { return };
    let (operator, alice) = (client(&server).with_key(OPERATOR), client(&server).with_key(ALICE));
    let before = expiry(&operator);
    // A client that asks for it with a short stay of its own, before and after the operator loaded it again.
    let short = json!({"model": INSTALLED, "prompt": "Hi", "keep_alive": "1s", "options": {"num_predict": 1}, "stream": false});
    alice.post("/api/generate", &short);
    assert_eq!(expiry(&operator), before, "a client's keep_alive");
    assert_eq!(unload(&operator).status, 200);
    let loaded = load(&operator);
    assert_eq!(loaded.status, 200, "{}", loaded.body);
    alice.post("/api/generate", &short);
    assert_eq!(expiry(&operator), before, "loaded again");
}
