//! The order in which a response's events may come, and that they add up to it.

use serde_json::{Value, json};

/// What may follow an event, by its type without `response.`.
fn follows(kind: &str) -> &'static [&'static str] {
    match kind {
        "created" => &["in_progress", "queued"],
        "queued" => &["in_progress"],
        "in_progress" | "output_item.done" => &["output_item.added", "completed", "incomplete", "failed"],
        "output_item.added" => &[
            "content_part.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "custom_tool_call_input.delta",
            "output_item.done",
        ],
        "content_part.added" => {
            &["output_text.delta", "output_text.done", "reasoning_text.delta", "reasoning_text.done"]
        }
        "output_text.delta" => &["output_text.delta", "output_text.done"],
        "reasoning_text.delta" => &["reasoning_text.delta", "reasoning_text.done"],
        "output_text.done" | "reasoning_text.done" => &["content_part.done"],
        "function_call_arguments.delta" => &["function_call_arguments.delta", "function_call_arguments.done"],
        "custom_tool_call_input.delta" => &["custom_tool_call_input.done"],
        "content_part.done" | "function_call_arguments.done" | "custom_tool_call_input.done" => {
            &["output_item.done"]
        }
        _ => &[],
    }
}

fn kind(event: &Value) -> &str {
    event["type"].as_str().and_then(|kind| kind.strip_prefix("response.")).expect("a type")
}

/// Checks the order of events, and that they add up to the response at the end.
pub fn check(events: &[Value]) {
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    assert_eq!(kind(&events[0]), "created");
    for pair in events.windows(2) {
        assert!(follows(kind(&pair[0])).contains(&kind(&pair[1])), "{} then {}", pair[0], pair[1]);
    }
    let last = &events.last().expect("events")["response"];
    let done: Vec<_> = events.iter().filter(|event| kind(event) == "output_item.done").collect();
    assert_eq!(last["output"].as_array().map(Vec::len), Some(done.len()));
    for (index, event) in done.iter().enumerate() {
        assert_eq!((&event["item"], &event["output_index"]), (&last["output"][index], &json!(index)));
        let of_item: Vec<_> = events.iter().filter(|event| event["output_index"] == index).collect();
        check_item(&event["item"], &of_item);
    }
}

fn check_item(item: &Value, events: &[&Value]) {
    assert_eq!(events[0]["item"]["id"], item["id"]);
    let inner = events.iter().filter(|event| event["item"].is_null());
    assert!(inner.clone().all(|event| event["item_id"] == item["id"]));
    let deltas = |wanted: &str| {
        let deltas = inner.clone().filter(|event| kind(event) == wanted);
        deltas.map(|event| event["delta"].as_str().expect("text")).collect::<String>()
    };
    match item["type"].as_str().expect("a type") {
        "message" => assert_eq!(item["content"][0]["text"], deltas("output_text.delta")),
        "reasoning" => assert_eq!(item["content"][0]["text"], deltas("reasoning_text.delta")),
        "function_call" => assert_eq!(item["arguments"], deltas("function_call_arguments.delta")),
        "custom_tool_call" => assert_eq!(item["input"], deltas("custom_tool_call_input.delta")),
        other => assert_eq!(other, "local_shell_call"),
    }
}
