//! Whole answers in Anthropic's shape.

use ropeway_engine::Usage;
use ropeway_generation::{Choice, Identity, StopReason, unique};
use serde_json::{Value, json};

/// The message an answer is.
pub fn message(identity: &Identity, choice: &Choice) -> Value {
    let mut message = empty(identity, &choice.finish.usage);
    let called = !choice.tool_calls.is_empty();
    message["stop_reason"] = stop_reason(&choice.finish.reason, called).into();
    message["stop_sequence"] = stop_sequence(&choice.finish.reason);
    message["usage"]["output_tokens"] = choice.finish.usage.generated.into();
    message["content"] = content(choice).into();
    message
}

/// A message without content yet.
pub fn empty(identity: &Identity, usage: &Usage) -> Value {
    json!({
        "id": identity.id,
        "type": "message",
        "role": "assistant",
        "model": identity.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": input_usage(usage.prompt, usage.cached),
    })
}

/// What was read: tokens from the cache are not counted as input again. Everything read is kept in the cache, but
/// nobody is charged for writing it, so nothing counts as creation.
pub fn input_usage(prompt: usize, cached: usize) -> Value {
    json!({
        "input_tokens": prompt - cached.min(prompt),
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": 0,
    })
}

fn content(choice: &Choice) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !choice.reasoning.is_empty() {
        blocks.push(json!({ "type": "thinking", "thinking": choice.reasoning, "signature": "" }));
    }
    if !choice.text.is_empty() {
        blocks.push(json!({ "type": "text", "text": choice.text }));
    }
    for call in &choice.tool_calls {
        let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        blocks.push(json!({ "type": "tool_use", "id": unique("toolu_"), "name": call.name, "input": input }));
    }
    blocks
}

/// Why an answer ended, in Anthropic's words.
pub fn stop_reason(reason: &StopReason, called: bool) -> &'static str {
    match reason {
        StopReason::EndOfText if called => "tool_use",
        StopReason::EndOfText | StopReason::Failed(_) => "end_turn",
        StopReason::StopString(_) => "stop_sequence",
        StopReason::Length => "max_tokens",
    }
}

/// The stop string it came to, if it did.
pub fn stop_sequence(reason: &StopReason) -> Value {
    match reason {
        StopReason::StopString(stop) => stop.as_str().into(),
        _ => Value::Null,
    }
}
