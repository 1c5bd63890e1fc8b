//! Anthropic's messages, brought into the form that chat templates know.
//!
//! ```text
//! system                         -> one system message at the beginning
//! system between messages        -> the user's text, marked: templates know one system message, and one that grew at the
//!                                   beginning would have everything after it read again
//! user: tool_result blocks       -> tool messages, before the user's own text
//! assistant: tool_use blocks     -> tool_calls; thinking -> reasoning_content
//! ```

use ropeway_generation::{OfferedTools, RequestError, ToolChoice};
use ropeway_text::without_billing_line;
use serde_json::{Map, Value, json};

use crate::field::take;

/// The conversation: system text first, then the messages.
pub fn messages(system: Option<Value>, given: Vec<Value>) -> Result<Vec<Value>, RequestError> {
    let system = system.map(system_text).transpose()?.unwrap_or_default();
    let mut out: Vec<Value> = Vec::new();
    for (index, mut message) in given.into_iter().enumerate() {
        let about = |error: RequestError| error.at(format!("messages.{index}"));
        let content = take(&mut message, "content");
        match message["role"].as_str() {
            // Claude Code puts reminders of this kind between messages.
            Some("system") => reminder(&system_text(content).map_err(about)?, &mut out),
            Some("user") => user(content, &mut out).map_err(about)?,
            Some("assistant") => out.push(assistant(content).map_err(about)?),
            _ => return Err(about(RequestError::invalid("role is user or assistant"))),
        }
    }
    if !system.is_empty() {
        out.insert(0, json!({ "role": "system", "content": system }));
    }
    Ok(out)
}

fn system_text(system: Value) -> Result<String, RequestError> {
    let blocks = match system {
        Value::String(text) => return Ok(text),
        Value::Array(blocks) => blocks,
        _ => return Err(RequestError::invalid("system is text or a list of text blocks").at("system")),
    };
    let texts: Vec<_> =
        blocks.iter().map(|block| without_billing_line(block["text"].as_str().unwrap_or_default())).collect();
    Ok(texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n"))
}

fn blocks(content: Value) -> Result<Vec<Value>, RequestError> {
    match content {
        Value::String(text) => Ok(vec![json!({ "type": "text", "text": text })]),
        Value::Array(blocks) => Ok(blocks),
        _ => Err(RequestError::invalid("content is text or a list of blocks")),
    }
}

/// Tool results become messages of their own; consecutive user texts become one message.
fn user(content: Value, out: &mut Vec<Value>) -> Result<(), RequestError> {
    let mut text = String::new();
    for block in blocks(content)? {
        match block["type"].as_str() {
            Some("text") => join(&mut text, block["text"].as_str().unwrap_or_default()),
            Some("tool_result") => out.push(tool_result(block)?),
            Some(kind @ ("image" | "document")) => {
                return Err(RequestError::invalid(format!("this model reads text only, not {kind:?}")));
            }
            _ => return Err(RequestError::invalid(format!("a user's message can't hold {}", block["type"]))),
        }
    }
    push_user(&text, out);
    Ok(())
}

/// Instructions in the middle of a conversation, in the form that Claude Code gives its own.
fn reminder(text: &str, out: &mut Vec<Value>) {
    if !text.is_empty() {
        push_user(&format!("<system-reminder>\n{text}\n</system-reminder>"), out);
    }
}

fn push_user(text: &str, out: &mut Vec<Value>) {
    match out.last_mut() {
        _ if text.is_empty() => {}
        Some(last) if last["role"] == "user" => {
            let before = last["content"].as_str().unwrap_or_default();
            last["content"] = format!("{before}\n\n{text}").into();
        }
        _ => out.push(json!({ "role": "user", "content": text })),
    }
}

fn tool_result(mut block: Value) -> Result<Value, RequestError> {
    let mut text = String::new();
    let content = take(&mut block, "content");
    if !content.is_null() {
        for part in blocks(content)? {
            match part["type"].as_str() {
                Some("text") | None => join(&mut text, part["text"].as_str().unwrap_or_default()),
                // A tool's result is not the client's choice: the conversation goes on without what can't be read.
                Some(kind) => join(&mut text, &format!("[{kind} left out: this model reads text only]")),
            }
        }
    }
    if block["is_error"] == true {
        text = format!("Error: {text}");
    }
    Ok(json!({ "role": "tool", "tool_call_id": block["tool_use_id"], "content": text }))
}

fn assistant(content: Value) -> Result<Value, RequestError> {
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for mut block in blocks(content)? {
        match block["type"].as_str() {
            Some("text") => join(&mut text, block["text"].as_str().unwrap_or_default()),
            Some("thinking") => join(&mut reasoning, block["thinking"].as_str().unwrap_or_default()),
            Some("tool_use") => calls.push(json!({
                "id": block["id"],
                "type": "function",
                "function": { "name": block["name"], "arguments": take(&mut block, "input") },
            })),
            Some("redacted_thinking" | "server_tool_use" | "web_search_tool_result") => {}
            _ => {
                return Err(RequestError::invalid(format!(
                    "an assistant's message can't hold {}",
                    block["type"]
                )));
            }
        }
    }
    let mut message = json!({ "role": "assistant", "content": text });
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    Ok(message)
}

fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push('\n');
    }
    text.push_str(more);
}

/// Tools as templates know them. Those that Anthropic's servers would run, or whose schema only its models know, have no
/// schema and are left out.
pub fn tools(given: Vec<Value>) -> OfferedTools {
    let mut offered = OfferedTools::default();
    for mut tool in given {
        let Some(schema) = tool.get_mut("input_schema").map(Value::take) else {
            offered.leave_out(
                tool["type"].as_str().unwrap_or("a tool without input_schema"),
                tool["name"].as_str(),
            );
            continue;
        };
        let mut function = Map::new();
        function.insert("name".into(), take(&mut tool, "name"));
        let description = tool.get_mut("description").map_or(json!(""), Value::take);
        function.insert("description".into(), description);
        function.insert("parameters".into(), schema);
        offered.add(json!({ "type": "function", "function": function }));
    }
    offered
}

/// Which tools may be called.
pub fn tool_choice(choice: Option<&Value>) -> Result<ToolChoice, RequestError> {
    let Some(choice) = choice else { return Ok(ToolChoice::Auto) };
    match (choice["type"].as_str(), choice["name"].as_str()) {
        (Some("auto"), _) => Ok(ToolChoice::Auto),
        (Some("none"), _) => Ok(ToolChoice::None),
        (Some("any"), _) => Ok(ToolChoice::Required),
        (Some("tool"), Some(name)) => Ok(ToolChoice::Named(name.into())),
        _ => {
            Err(RequestError::invalid("tool_choice is auto, any, none or a tool with a name")
                .at("tool_choice"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_of_claude_code_becomes_a_plain_conversation() {
        let system =
            json!([{"type": "text", "text": "You are helpful."}, {"type": "text", "text": "Be brief."}]);
        let given = vec![
            json!({"role": "user", "content": "What is in a.txt?"}),
            json!({"role": "user", "content": [{"type": "text", "text": "Quick."}]}),
            json!({"role": "assistant", "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.txt"}}]}),
            json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "hello"}]},
                {"type": "text", "text": "And?"}]}),
        ];
        let got = messages(Some(system), given).unwrap();
        let roles: Vec<_> = got.iter().map(|m| m["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
        assert_eq!(got[0]["content"], "You are helpful.\n\nBe brief.");
        assert_eq!(got[1]["content"], "What is in a.txt?\n\nQuick.");
        assert_eq!(got[2]["tool_calls"][0]["function"]["arguments"]["path"], "a.txt");
        assert_eq!((&got[3]["tool_call_id"], &got[3]["content"]), (&json!("t1"), &json!("hello")));
    }

    #[test]
    fn instructions_between_messages_stay_where_they_are() {
        let given = vec![
            json!({"role": "user", "content": "One."}),
            json!({"role": "assistant", "content": "Two."}),
            json!({"role": "system", "content": "Be brief."}),
            json!({"role": "user", "content": "Three."}),
        ];
        let got = messages(Some(json!("Help.")), given).unwrap();
        assert_eq!(got[0], json!({"role": "system", "content": "Help."}));
        let reminder = "<system-reminder>\nBe brief.\n</system-reminder>\n\nThree.";
        assert_eq!(got[3], json!({"role": "user", "content": reminder}));
        assert_eq!(got.len(), 4);
    }

    #[test]
    fn an_image_in_a_tools_result_is_left_out_and_said_so() {
        let image = json!({"type": "image", "source": {}});
        let result = json!({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "a"}, image]});
        let got = messages(None, vec![json!({"role": "user", "content": [result]})]).unwrap();
        assert_eq!(got[0]["content"], "a\n[image left out: this model reads text only]");
    }

    #[test]
    fn an_image_is_a_clear_error() {
        let given = vec![json!({"role": "user", "content": [{"type": "image", "source": {}}]})];
        let error = messages(None, given).unwrap_err();
        assert!(error.message.contains("text only") && error.field.as_deref() == Some("messages.0"));
    }

    #[test]
    fn tools_without_a_schema_are_left_out_unless_they_are_forced() {
        let offered = || {
            tools(vec![
                json!({"name": "f", "input_schema": {"type": "object"}}),
                json!({"type": "web_search_20250305", "name": "web_search"}),
                json!({"type": "bash_20250124", "name": "bash"}),
            ])
        };
        assert_eq!(offered().callable(&ToolChoice::Auto).unwrap().len(), 1);
        assert_eq!(offered().callable(&ToolChoice::Required).unwrap().len(), 1);
        assert!(offered().callable(&ToolChoice::Named("bash".into())).is_err());
    }
}
