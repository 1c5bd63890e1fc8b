//! Tools for models whose template knows none.
//!
//! The conversation is rewritten so that any template can render it, in the form that Hermes models made common and most
//! models have seen:
//!
//! | before | after |
//! |---|---|
//! | the request's tools | instructions at the end of the system message, with the tools as JSON |
//! | an assistant's `tool_calls` | `<tool_call>{"name": .., "arguments": {..}}</tool_call>` at the end of its content |
//! | `tool` messages | one user message with `<tool_response>` around each |
//!
//! [`OutputStyle::detect`](crate::OutputStyle::detect) understands the answers of every model in this form.

use serde_json::{Map, Value, json};
use std::fmt::Write;

/// The messages with tools, calls and results written out as text, for templates of which
/// [`writes_tools`](super::ChatTemplate::writes_tools) says that they leave tools out. Render the result without tools.
pub fn tools_as_text(messages: &[Value], tools: &[Value]) -> Vec<Value> {
    let mut rewritten: Vec<Value> = Vec::with_capacity(messages.len() + 1);
    for (index, message) in messages.iter().enumerate() {
        let follows_result = index > 0 && role(&messages[index - 1]) == "tool";
        match (role(message), rewritten.last_mut()) {
            ("tool", Some(results)) if follows_result => append(results, "\n", &result(message)),
            ("tool", _) => rewritten.push(json!({"role": "user", "content": result(message)})),
            ("assistant", _) => rewritten.push(with_calls_as_text(message)),
            _ => rewritten.push(message.clone()),
        }
    }
    if tools.is_empty() {
        return rewritten;
    }
    match rewritten.first_mut().filter(|first| matches!(role(first), "system" | "developer")) {
        Some(system) => append(system, "\n\n", &instructions(tools)),
        None => rewritten.insert(0, json!({"role": "system", "content": instructions(tools)})),
    }
    rewritten
}

fn instructions(tools: &[Value]) -> String {
    let mut text = "# Tools\n\nYou may call one or more functions to help with the user's request. \
                    The functions, as JSON, are:\n<tools>"
        .to_owned();
    for tool in tools {
        // Writing to a string can't fail.
        let _ = write!(text, "\n{tool}");
    }
    text.push_str(
        "\n</tools>\n\nTo call a function, answer with its name and arguments as JSON inside <tool_call></tool_call> tags, \
         one pair of tags for each call:\n<tool_call>\n{\"name\": \"function name\", \"arguments\": {\"argument\": \"value\"}}\n\
         </tool_call>\nIf no function is needed, answer in plain words.",
    );
    text
}

fn role(message: &Value) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or_default()
}

fn result(message: &Value) -> String {
    let content = message.get("content").map(content_text).unwrap_or_default();
    format!("<tool_response>\n{content}\n</tool_response>")
}

/// The text of a message's content: a string, or a list of parts.
fn content_text(content: &Value) -> String {
    let part_text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(part_text).collect(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn with_calls_as_text(message: &Value) -> Value {
    let Some(calls) = message.get("tool_calls").and_then(Value::as_array) else { return message.clone() };
    let mut entries: Map<String, Value> = message.as_object().cloned().unwrap_or_default();
    entries.shift_remove("tool_calls");
    let mut rewritten = Value::Object(entries);
    for call in calls {
        append(&mut rewritten, "\n", &call_text(call));
    }
    rewritten
}

fn call_text(call: &Value) -> String {
    let function = call.get("function").unwrap_or(call);
    // APIs carry arguments as a string that holds JSON.
    let arguments = match function.get("arguments") {
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        Some(arguments) => arguments.clone(),
        None => json!({}),
    };
    let name = function.get("name").cloned().unwrap_or_default();
    format!("<tool_call>\n{}\n</tool_call>", json!({"name": name, "arguments": arguments}))
}

/// Adds to a message's content.
fn append(message: &mut Value, separator: &str, text: &str) {
    let Some(entries) = message.as_object_mut() else { return };
    let content = entries.entry("content").or_insert(Value::Null);
    if let Value::Array(parts) = content {
        parts.push(json!({"type": "text", "text": format!("{separator}{text}")}));
        return;
    }
    let before = content_text(content);
    let separator = if before.is_empty() { "" } else { separator };
    *content = Value::String(format!("{before}{separator}{text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_told_in_the_system_message() {
        let tools = [json!({"type": "function", "function": {"name": "clock"}})];
        let user = json!({"role": "user", "content": "Hi"});
        let added = tools_as_text(std::slice::from_ref(&user), &tools);
        let told = added[0]["content"].as_str().unwrap();
        assert!(
            told.contains(r#"{"type":"function","function":{"name":"clock"}}"#)
                && told.contains("<tool_call>")
        );
        assert_eq!(added[1], user);
        let system = json!({"role": "system", "content": "Be brief."});
        let extended = tools_as_text(&[system, user.clone()], &tools);
        assert_eq!(extended.len(), 2);
        assert_eq!(extended[0]["content"], format!("Be brief.\n\n{told}"));
        assert_eq!(tools_as_text(std::slice::from_ref(&user), &[]), [user]);
    }

    #[test]
    fn calls_and_their_results_become_text() {
        let call = |name: &str| json!({"id": "1", "function": {"name": name, "arguments": "{\"a\": 1}"}});
        let messages = [
            json!({"role": "assistant", "content": null, "tool_calls": [call("f"), call("g")]}),
            json!({"role": "tool", "tool_call_id": "1", "content": "one"}),
            json!({"role": "tool", "tool_call_id": "2", "content": [{"type": "text", "text": "two"}]}),
        ];
        let call = |name: &str| {
            format!("<tool_call>\n{{\"name\":\"{name}\",\"arguments\":{{\"a\":1}}}}\n</tool_call>")
        };
        let expected = [
            json!({"role": "assistant", "content": format!("{}\n{}", call("f"), call("g"))}),
            json!({"role": "user", "content": "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>"}),
        ];
        assert_eq!(tools_as_text(&messages, &[]), expected);
    }
}
