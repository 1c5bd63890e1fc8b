//! Streamed events of every kind of output item, on the default model.

use serde_json::json;

use crate::support::{send, text};
use crate::tools::{functions, served};
use crate::{events, order, responses};

#[tokio::test]
async fn events_of_every_kind_of_item_come_in_order_and_add_up() {
    let Some(app) = served() else { return };
    let choose = |name: &str, kind: &str| json!({"type": kind, "name": name});
    for (choice, item) in [
        (json!("none"), "message"),
        (choose("warmth", "function"), "function_call"),
        (choose("patch", "custom"), "custom_tool_call"),
        (json!({"type": "local_shell"}), "local_shell_call"),
    ] {
        let body =
            json!({"tools": functions(), "tool_choice": choice, "stream": true, "max_output_tokens": 48});
        let stream = text(send(&app, responses(&[], &body)).await).await;
        let events = events(&stream);
        order::check(&events);
        assert_eq!(events.last().expect("events")["response"]["output"][0]["type"], item);
    }
}
