//! Input items, brought into the form that chat templates know.
//!
//! ```text
//! instructions            -> a system message
//! message                 -> a message; developer is system
//! function_call           -> a tool call of the assistant's message before it, or of a new one
//! function_call_output    -> a tool message
//! reasoning               -> left out: templates drop it too
//! ```

use ropeway_generation::RequestError;
use ropeway_openai::messages;
use serde_json::{Value, json};

use crate::field::take;

/// The conversation.
pub fn messages(instructions: Option<&str>, input: Value) -> Result<Vec<Value>, RequestError> {
    let mut out = Vec::new();
    if let Some(text) = instructions {
        out.push(json!({ "role": "system", "content": text }));
    }
    match input {
        Value::String(text) => out.push(json!({ "role": "user", "content": text })),
        Value::Array(items) => {
            for (index, item) in items.into_iter().enumerate() {
                add(item, &mut out).map_err(|error| error.at(format!("input.{index}")))?;
            }
        }
        _ => return Err(RequestError::invalid("input is text or a list of items").at("input")),
    }
    messages::messages(out)
}

fn add(mut item: Value, out: &mut Vec<Value>) -> Result<(), RequestError> {
    match item["type"].as_str() {
        None | Some("message") => {
            let content = messages::content(take(&mut item, "content"))?;
            out.push(json!({ "role": item["role"], "content": content }));
        }
        Some("function_call") => {
            let function = json!({ "name": item["name"], "arguments": item["arguments"] });
            let call = json!({ "id": item["call_id"], "type": "function", "function": function });
            assistant(out).push(call);
        }
        Some("function_call_output") => {
            let content = messages::content(take(&mut item, "output"))?;
            out.push(json!({ "role": "tool", "tool_call_id": item["call_id"], "content": content }));
        }
        Some("reasoning") => {}
        Some(other) => {
            return Err(RequestError::invalid(format!("items of type {other:?} can't be read here")));
        }
    }
    Ok(())
}

/// The tool calls of the assistant's message at the end.
fn assistant(out: &mut Vec<Value>) -> &mut Vec<Value> {
    if out.last().is_none_or(|last| last["role"] != "assistant") {
        out.push(json!({ "role": "assistant", "content": "" }));
    }
    let end = out.len() - 1;
    let calls = &mut out[end]["tool_calls"];
    if !calls.is_array() {
        *calls = json!([]);
    }
    calls.as_array_mut().expect("made above")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_with_a_tool_becomes_a_plain_conversation() {
        let input = json!([
            {"role": "user", "content": [{"type": "input_text", "text": "How warm is it?"}]},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "warmth", "arguments": "{\"at\": \"home\"}"},
            {"type": "function_call", "call_id": "c2", "name": "warmth", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "20"},
        ]);
        let got = messages(Some("Be brief."), input).unwrap();
        let roles: Vec<_> = got.iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool"]);
        assert_eq!(got[2]["tool_calls"][0]["function"]["arguments"], json!({"at": "home"}));
        assert_eq!(got[2]["tool_calls"].as_array().map(Vec::len), Some(2));
        assert_eq!(got[3]["content"], "20");
    }

    #[test]
    fn what_can_not_be_read_is_named() {
        let error = messages(None, json!([{"type": "computer_call"}])).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("input.0"));
        assert!(messages(None, json!(5)).is_err());
        assert!(messages(None, json!([{"type": "function_call"}, 7])).is_err());
    }
}
