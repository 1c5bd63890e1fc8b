//! OpenAI's messages, checked and brought into the form that chat templates know.

use ropeway_generation::RequestError;
use serde_json::{Value, json};

/// Checks every message; templates get what they expect and nothing they could stumble over.
pub fn messages(given: Vec<Value>) -> Result<Vec<Value>, RequestError> {
    given.into_iter().enumerate().map(|(i, message)| one(i, message)).collect()
}

fn one(index: usize, mut message: Value) -> Result<Value, RequestError> {
    let at = |what: &str| format!("messages.{index}{what}");
    let role = message["role"].as_str().map(str::to_owned);
    let role = match role.as_deref() {
        Some("developer") => "system",
        Some(role @ ("system" | "user" | "assistant" | "tool" | "function")) => role,
        _ => {
            return Err(RequestError::invalid(
                "a message's role is system, developer, user, assistant or tool",
            )
            .at(at(".role")));
        }
    };
    message["role"] = role.into();
    let text = content(message["content"].take()).map_err(|error| error.at(at(".content")))?;
    message["content"] = text.into();
    if let Some(calls) = message.get_mut("tool_calls").and_then(Value::as_array_mut) {
        calls.iter_mut().for_each(parse_arguments);
    }
    Ok(message)
}

/// A string, the texts of its parts, or nothing beside tool calls.
pub fn content(content: Value) -> Result<String, RequestError> {
    match content {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text),
        Value::Array(parts) => parts.iter().map(part).collect(),
        _ => Err(RequestError::invalid("content is text or a list of parts")),
    }
}

fn part(part: &Value) -> Result<String, RequestError> {
    match part["type"].as_str() {
        Some("text" | "input_text" | "output_text" | "refusal") => {
            let text = part["text"].as_str().or_else(|| part["refusal"].as_str());
            Ok(text.unwrap_or_default().to_owned())
        }
        Some(kind) => Err(RequestError::invalid(format!("this model reads text only, not {kind:?}"))),
        None => Err(RequestError::invalid("every part of a content has a type")),
    }
}

/// Clients send arguments as JSON text; templates want the object.
fn parse_arguments(call: &mut Value) {
    let Some(arguments) = call.pointer_mut("/function/arguments") else { return };
    if let Some(parsed) = arguments.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok()) {
        *arguments = if parsed.is_object() { parsed } else { json!({}) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_and_roles_made_known() {
        let given = vec![
            json!({"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
            json!({"role": "assistant", "content": null,
                   "tool_calls": [{"function": {"name": "f", "arguments": "{\"x\": 1}"}}]}),
        ];
        let got = messages(given).unwrap();
        assert_eq!(got[0], json!({"role": "system", "content": "ab"}));
        assert_eq!(got[1]["tool_calls"][0]["function"]["arguments"], json!({"x": 1}));
    }

    #[test]
    fn what_can_not_be_read_is_named() {
        let image = json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]});
        let error = messages(vec![image]).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("messages.0.content"));
        assert!(error.message.contains("text only"));
        assert!(messages(vec![json!({"content": "no role"})]).is_err());
        assert!(messages(vec![json!("no object"), json!(5), json!(null)]).is_err());
    }

    #[test]
    fn calls_of_any_shape_are_passed_on() {
        for call in [json!("x"), json!({"function": 5}), json!({"function": {"arguments": 7}}), json!(null)] {
            let message = json!({"role": "assistant", "content": "", "tool_calls": [call.clone()]});
            assert_eq!(messages(vec![message]).unwrap()[0]["tool_calls"][0], call);
        }
    }
}
