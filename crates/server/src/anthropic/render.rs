//! Whole answers in Anthropic's shape.

use ropeway_engine::Usage;
use serde_json::{Value, json};

use crate::generation::Stopped;
use crate::generation::chat::ChatWhole;
use crate::identity::{Identity, unique};

/// The message an answer is.
pub fn message(identity: &Identity, whole: Option<ChatWhole>) -> Value {
    let Some(whole) = whole else { return empty(identity, &Usage::default()) };
    let mut message = empty(identity, &whole.usage);
    let called = !whole.calls.is_empty();
    message["stop_reason"] = stop_reason(&whole.stopped, called).into();
    message["stop_sequence"] = stop_sequence(&whole.stopped);
    message["usage"]["output_tokens"] = whole.usage.generated.into();
    message["content"] = content(&whole).into();
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

fn content(whole: &ChatWhole) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !whole.reasoning.is_empty() {
        blocks.push(json!({ "type": "thinking", "thinking": whole.reasoning, "signature": "" }));
    }
    if !whole.text.is_empty() {
        blocks.push(json!({ "type": "text", "text": whole.text }));
    }
    for call in &whole.calls {
        let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        blocks.push(json!({ "type": "tool_use", "id": unique("toolu_"), "name": call.name, "input": input }));
    }
    blocks
}

/// Why an answer ended, in Anthropic's words.
pub fn stop_reason(stopped: &Stopped, called: bool) -> &'static str {
    match stopped {
        Stopped::End if called => "tool_use",
        Stopped::End | Stopped::Failed(_) => "end_turn",
        Stopped::At(_) => "stop_sequence",
        Stopped::Length => "max_tokens",
    }
}

/// The stop string it came to, if it did.
pub fn stop_sequence(stopped: &Stopped) -> Value {
    match stopped {
        Stopped::At(stop) => stop.as_str().into(),
        _ => Value::Null,
    }
}
