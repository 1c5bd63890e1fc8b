//! What a response repeats of its request, and what of a request can't be honoured.

use ropeway_generation::RequestError;
use serde_json::{Value, json};

use super::request::ResponsesRequest;

/// Names and values of metadata, and the bytes of each.
const METADATA: (usize, usize, usize) = (16, 64, 512);

/// Turns down what can't be honoured.
pub fn check(request: &ResponsesRequest) -> Result<(), RequestError> {
    let given = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    let refused = |what: &str, field: &str| Err(RequestError::invalid(what).at(field));
    if given(&request.prompt) {
        return refused("there are no stored prompts here; send instructions and input", "prompt");
    }
    if request.previous_response_id.is_some() && given(&request.conversation) {
        let what = "previous_response_id and conversation exclude each other; send one of them";
        return refused(what, "conversation");
    }
    if request.background == Some(true) && request.store == Some(false) {
        return refused("a response in the background is stored; leave store out", "background");
    }
    word(request.truncation.as_deref(), &["auto", "disabled"], "truncation")?;
    let efforts = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
    word(part(request.reasoning.as_ref(), "effort"), &efforts, "reasoning.effort")?;
    word(part(request.text.as_ref(), "verbosity"), &["low", "medium", "high"], "text.verbosity")?;
    metadata(request.metadata.as_ref())
}

/// A word within an object.
fn part<'a>(whole: Option<&'a Value>, name: &str) -> Option<&'a str> {
    whole?.get(name)?.as_str()
}

fn word(given: Option<&str>, known: &[&str], field: &str) -> Result<(), RequestError> {
    match given {
        Some(word) if !known.contains(&word) => {
            let what = format!("{field} is one of {}", known.join(", "));
            Err(RequestError::invalid(what).at(field))
        }
        _ => Ok(()),
    }
}

/// Turns down metadata that is not a few short texts.
pub fn metadata(given: Option<&Value>) -> Result<(), RequestError> {
    let (most, name_bytes, value_bytes) = METADATA;
    let is_short = |(name, value): (&String, &Value)| {
        name.len() <= name_bytes && value.as_str().is_some_and(|value| value.len() <= value_bytes)
    };
    match given {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(fields)) if fields.len() <= most && fields.iter().all(is_short) => Ok(()),
        Some(_) => {
            let what = format!(
                "metadata is an object of at most {most} names of {name_bytes} bytes with texts of {value_bytes} bytes"
            );
            Err(RequestError::invalid(what).at("metadata"))
        }
    }
}

/// The form that an answer has to follow.
pub fn format(request: &ResponsesRequest) -> Option<&Value> {
    request.text.as_ref()?.get("format")
}

/// What every response repeats of its request.
pub fn echo(request: &ResponsesRequest) -> Value {
    let text = |name: &str| request.text.as_ref().and_then(|text| text.get(name)).cloned();
    let reasoning =
        |name: &str| request.reasoning.as_ref().and_then(|reasoning| reasoning.get(name)).cloned();
    let id = request.conversation_id().ok().flatten();
    json!({
        "background": request.background == Some(true),
        "conversation": id.map(|id| json!({ "id": id })),
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "metadata": request.metadata.clone().filter(|given| !given.is_null()).unwrap_or_else(|| json!({})),
        "parallel_tool_calls": request.parallel_tool_calls != Some(false),
        "previous_response_id": request.previous_response_id,
        "prompt_cache_key": request.prompt_cache_key,
        "reasoning": { "effort": reasoning("effort"), "summary": reasoning("summary") },
        "safety_identifier": request.safety_identifier,
        "service_tier": "default",
        "store": request.store != Some(false),
        "temperature": request.temperature.unwrap_or(1.0),
        "text": {
            "format": format(request).cloned().unwrap_or_else(|| json!({ "type": "text" })),
            "verbosity": text("verbosity").unwrap_or_else(|| json!("medium")),
        },
        "tool_choice": request.tool_choice.clone().unwrap_or_else(|| json!("auto")),
        "tools": request.tools.clone().unwrap_or_default(),
        "top_logprobs": request.top_logprobs.unwrap_or(0),
        "top_p": request.top_p.unwrap_or(1.0),
        "truncation": request.truncation.as_deref().unwrap_or("disabled"),
        "user": request.user,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: Value) -> ResponsesRequest {
        serde_json::from_value(fields).expect("fields")
    }

    #[test]
    fn what_can_not_be_honoured_is_named() {
        for (wrong, field) in [
            (json!({"prompt": {"id": "pmpt_1"}}), "prompt"),
            (json!({"previous_response_id": "resp_1", "conversation": "conv_1"}), "conversation"),
            (json!({"background": true, "store": false}), "background"),
            (json!({"truncation": "middle"}), "truncation"),
            (json!({"reasoning": {"effort": "heroic"}}), "reasoning.effort"),
            (json!({"text": {"verbosity": "chatty"}}), "text.verbosity"),
            (json!({"metadata": {"a": 1}}), "metadata"),
            (json!({"metadata": {"a": "x".repeat(513)}}), "metadata"),
            (json!({"metadata": []}), "metadata"),
        ] {
            let error = check(&request(wrong.clone())).expect_err("it can't be honoured");
            assert_eq!(error.field.as_deref(), Some(field), "{wrong}");
        }
    }

    #[test]
    fn what_codex_and_the_sdks_send_by_default_is_taken() {
        for fine in [
            json!({"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"], "store": false}),
            json!({"reasoning": {"effort": null}, "text": {"verbosity": null}, "metadata": null}),
            json!({"truncation": "auto", "service_tier": "flex", "max_tool_calls": 3, "metadata": {"a": "b"}}),
        ] {
            check(&request(fine)).expect("it can be honoured");
        }
    }
}
