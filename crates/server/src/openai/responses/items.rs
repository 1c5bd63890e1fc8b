//! Items in the form that they are kept and listed in: each with a type, an id and parts for content.

use ropeway_generation::{RequestError, unique};
use serde_json::{Value, json};

/// The items of an input, which may be a text.
pub fn of_input(input: Value) -> Result<Vec<Value>, RequestError> {
    match input {
        Value::String(text) => Ok(vec![json!({ "type": "message", "role": "user", "content": text })]),
        Value::Array(items) => Ok(items),
        Value::Null => Ok(Vec::new()),
        _ => Err(RequestError::invalid("input is text or a list of items").at("input")),
    }
}

/// The item that an item refers to by its id. Some clients leave the type out.
pub fn reference(item: &Value) -> Option<&str> {
    let is_bare = item["type"].is_null() && item["role"].is_null();
    item["id"].as_str().filter(|_| is_bare || item["type"] == "item_reference")
}

/// The item as it is kept.
pub fn normal(mut item: Value) -> Result<Value, RequestError> {
    let Some(fields) = item.as_object_mut() else {
        return Err(RequestError::invalid("an item is an object"));
    };
    let kind = fields.entry("type").or_insert_with(|| "message".into());
    let prefix = id_prefix(kind.as_str().unwrap_or_default());
    let has_id = fields.get("id").is_some_and(Value::is_string);
    if !has_id {
        fields.insert("id".into(), unique(prefix).into());
    }
    if item["status"].is_null() {
        item["status"] = "completed".into();
    }
    if let Value::String(text) = &mut item["content"] {
        let text = std::mem::take(text);
        let is_answer = item["role"] == "assistant";
        item["content"] = if is_answer {
            json!([{ "type": "output_text", "text": text, "annotations": [] }])
        } else {
            json!([{ "type": "input_text", "text": text }])
        };
    } else if item["content"].is_null()
        && let Some(fields) = item.as_object_mut()
    {
        fields.shift_remove("content");
    }
    Ok(item)
}

/// What ids of items of this type begin with.
fn id_prefix(kind: &str) -> &'static str {
    match kind {
        "message" => "msg_",
        "reasoning" => "rs_",
        "function_call" => "fc_",
        "function_call_output" => "fco_",
        "custom_tool_call" => "ctc_",
        "custom_tool_call_output" => "ctco_",
        "local_shell_call" => "lsh_",
        "local_shell_call_output" => "lsho_",
        _ => "item_",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_get_what_they_lack_and_keep_what_they_have() {
        let item = normal(json!({"role": "user", "content": "Hi"})).unwrap();
        assert_eq!((&item["type"], &item["status"]), (&json!("message"), &json!("completed")));
        assert_eq!(item["content"], json!([{"type": "input_text", "text": "Hi"}]));
        assert!(item["id"].as_str().unwrap().starts_with("msg_"));
        let call = json!({"type": "function_call", "id": "fc_1", "status": "incomplete", "arguments": "{}"});
        assert_eq!(normal(call.clone()).unwrap(), call);
        assert!(normal(json!("Hi")).is_err());
    }

    #[test]
    fn references_are_told_from_messages_with_ids() {
        assert_eq!(reference(&json!({"type": "item_reference", "id": "a"})), Some("a"));
        assert_eq!(reference(&json!({"id": "a"})), Some("a"));
        for other in [json!({"id": "a", "role": "user"}), json!({"id": "a", "type": "message"}), json!(7)] {
            assert_eq!(reference(&other), None);
        }
    }
}
