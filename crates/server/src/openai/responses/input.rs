//! Input items, brought into the form that chat templates know.
//!
//! ```text
//! instructions, system, developer   -> a system message; those in a row are one
//! message                           -> a message
//! reasoning                         -> reasoning_content of the assistant's next message
//! *_call with a call_id             -> a tool call of the assistant's message before it, or of a new one
//! *_output with a call_id           -> a tool message
//! *_call without a call_id          -> a short note: another server ran it
//! agent_message                     -> a user message with its author
//! compaction, additional_tools, ... -> nothing to say
//! ```

use ropeway_generation::RequestError;
use ropeway_openai::messages;
use serde_json::{Value, json};

use super::tools::{LOCAL_SHELL, shown_name};
use crate::field::take;

/// What thoughts begin with that were handed to the client in place of encrypted ones.
pub const SEALED: &str = "ropeway:";

/// Characters that are told of a call that another server ran.
const NOTE: usize = 200;

/// The conversation.
pub fn messages(instructions: Option<&str>, items: Vec<Value>) -> Result<Vec<Value>, RequestError> {
    let mut history = History::default();
    if let Some(text) = instructions {
        history.system(text);
    }
    for (index, item) in items.into_iter().enumerate() {
        history.add(item).map_err(|error| error.at(format!("input.{index}")))?;
    }
    messages::messages(history.out)
}

#[derive(Default)]
struct History {
    out: Vec<Value>,
    /// Thoughts before the assistant's next message.
    reasoning: String,
}

impl History {
    fn add(&mut self, mut item: Value) -> Result<(), RequestError> {
        let kind = item["type"].as_str().unwrap_or("message").to_owned();
        match kind.as_str() {
            "message" => self.message(item)?,
            "reasoning" => self.reasoning.push_str(&thoughts(&item)),
            "function_call" => {
                let arguments = take(&mut item, "arguments");
                let name = item["name"].as_str().map(|name| shown_name(item["namespace"].as_str(), name));
                self.call(&item, name.into(), arguments);
            }
            "custom_tool_call" => {
                let arguments = json!({ "input": item["input"] });
                let name = item["name"].as_str().map(|name| shown_name(item["namespace"].as_str(), name));
                self.call(&item, name.into(), arguments);
            }
            "agent_message" => {
                let text = messages::content(take(&mut item, "content"))?;
                let author = item["author"].as_str().unwrap_or("another agent").to_owned();
                self.out.push(json!({ "role": "user", "content": format!("{author}: {text}") }));
            }
            "compaction"
            | "compaction_summary"
            | "context_compaction"
            | "compaction_trigger"
            | "additional_tools"
            | "mcp_list_tools"
            | "mcp_approval_request"
            | "mcp_approval_response" => {}
            other => return self.other(other, item),
        }
        Ok(())
    }

    fn message(&mut self, mut item: Value) -> Result<(), RequestError> {
        let content = messages::content(take(&mut item, "content"))?;
        match item["role"].as_str() {
            Some("system" | "developer") => self.system(&content),
            Some("assistant") => self.assistant(&content),
            _ => {
                // Thoughts that led to nothing.
                self.reasoning.clear();
                self.out.push(json!({ "role": item["role"], "content": content }));
            }
        }
        Ok(())
    }

    /// Calls of tools that only some clients have, those that another server ran, and what they gave.
    fn other(&mut self, kind: &str, mut item: Value) -> Result<(), RequestError> {
        let call_id = item["call_id"].as_str().or_else(|| item["id"].as_str()).unwrap_or_default();
        if kind.ends_with("_output") {
            if item["output"].is_null() {
                return Ok(());
            }
            let call_id = call_id.to_owned();
            let content = output_text(take(&mut item, "output"));
            self.out.push(json!({ "role": "tool", "tool_call_id": call_id, "content": content }));
        } else if let Some(name) = kind.strip_suffix("_call") {
            if kind == "local_shell_call" || (item["call_id"].is_string() && kind != "tool_search_call") {
                let name = if kind == "local_shell_call" { LOCAL_SHELL } else { name };
                let arguments = ["action", "operation", "arguments"].map(|field| take(&mut item, field));
                let arguments = arguments.into_iter().find(|value| !value.is_null()).unwrap_or_default();
                self.call(&item, name.into(), without_nulls(arguments));
            } else {
                self.note(name, &item);
            }
        } else {
            let what = format!("items of type {kind:?} can't be read here; leave them out");
            return Err(RequestError::invalid(what));
        }
        Ok(())
    }

    fn system(&mut self, text: &str) {
        match self.out.last_mut().filter(|last| last["role"] == "system") {
            Some(last) => {
                let before = last["content"].as_str().unwrap_or_default();
                last["content"] = format!("{before}\n\n{text}").into();
            }
            None => self.out.push(json!({ "role": "system", "content": text })),
        }
    }

    fn assistant(&mut self, text: &str) {
        let mut message = json!({ "role": "assistant", "content": text });
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = std::mem::take(&mut self.reasoning).into();
        }
        self.out.push(message);
    }

    /// One more call of the assistant's message at the end.
    fn call(&mut self, item: &Value, name: Value, arguments: Value) {
        let is_assistant = self.out.last().is_some_and(|last| last["role"] == "assistant");
        if !is_assistant || !self.reasoning.is_empty() {
            self.assistant("");
        }
        let id = item.get("call_id").or_else(|| item.get("id")).cloned().unwrap_or_default();
        let mut call = json!({ "id": id, "type": "function", "function": {} });
        (call["function"]["name"], call["function"]["arguments"]) = (name, arguments);
        let Some(calls) = self.out.last_mut().map(|last| &mut last["tool_calls"]) else { return };
        match calls.as_array_mut() {
            Some(calls) => calls.push(call),
            None => *calls = json!([call]),
        }
    }

    /// Says in short what another server did.
    fn note(&mut self, name: &str, item: &Value) {
        let about = ["/action/query", "/queries", "/code", "/revised_prompt", "/name"]
            .into_iter()
            .find_map(|path| item.pointer(path).filter(|value| !value.is_null()));
        let about = about.map(|value| value.as_str().map_or_else(|| value.to_string(), Into::into));
        let about: String = about.unwrap_or_default().chars().take(NOTE).collect();
        self.assistant(format!("[{} {about}", name.replace('_', " ")).trim_end());
        if let Some(last) = self.out.last_mut() {
            last["content"] = format!("{}]", last["content"].as_str().unwrap_or_default()).into();
        }
    }
}

/// What a tool gave: a text, the texts of its parts, or JSON as it is.
fn output_text(output: Value) -> String {
    match output {
        Value::String(text) => text,
        Value::Array(parts) => parts.iter().map(output_part).collect::<Vec<_>>().join("\n"),
        other => output_part(&other),
    }
}

fn output_part(part: &Value) -> String {
    match part["type"].as_str() {
        Some("input_text" | "output_text" | "text") => part["text"].as_str().unwrap_or_default().into(),
        Some(kind) if part["image_url"].is_string() || kind.contains("image") || kind.contains("audio") => {
            format!("[{kind}: this model reads text only]")
        }
        _ => part.to_string(),
    }
}

/// What the model thought, as far as it can be read.
fn thoughts(item: &Value) -> String {
    let texts = |field: &str| {
        let parts = item[field].as_array().into_iter().flatten();
        parts.filter_map(|part| part["text"].as_str()).collect::<String>()
    };
    let sealed = item["encrypted_content"].as_str().and_then(|text| text.strip_prefix(SEALED));
    let content = texts("content");
    match sealed {
        _ if !content.is_empty() => content,
        Some(text) => text.into(),
        None => texts("summary"),
    }
}

fn without_nulls(mut arguments: Value) -> Value {
    if let Some(fields) = arguments.as_object_mut() {
        fields.retain(|name, value| !value.is_null() && name != "type");
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(got: &[Value]) -> Vec<&str> {
        got.iter().map(|message| message["role"].as_str().unwrap()).collect()
    }

    #[test]
    fn a_turn_with_a_tool_becomes_a_plain_conversation() {
        let input = vec![
            json!({"role": "developer", "content": "Use tools."}),
            json!({"role": "user", "content": [{"type": "input_text", "text": "How warm is it?"}]}),
            json!({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}),
            json!({"type": "function_call", "call_id": "c1", "name": "warmth", "arguments": "{\"at\": \"home\"}"}),
            json!({"type": "function_call", "call_id": "c2", "namespace": "n", "name": "f", "arguments": "{}"}),
            json!({"type": "function_call_output", "call_id": "c1", "output": "20"}),
            json!({"type": "function_call_output", "call_id": "c2",
                   "output": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "x"}]}),
        ];
        let got = messages(Some("Be brief."), input).unwrap();
        assert_eq!(roles(&got), ["system", "user", "assistant", "tool", "tool"]);
        assert_eq!(got[0]["content"], "Be brief.\n\nUse tools.");
        assert_eq!(got[2]["reasoning_content"], "hm");
        assert_eq!(got[2]["tool_calls"][0]["function"]["arguments"], json!({"at": "home"}));
        assert_eq!(got[2]["tool_calls"][1]["function"]["name"], "n__f");
        assert_eq!(got[3]["content"], "20");
        assert!(got[4]["content"].as_str().unwrap().starts_with("a\n[input_image"));
    }

    #[test]
    fn every_item_of_codex_and_the_ai_sdk_is_read() {
        let input = vec![
            json!({"type": "additional_tools", "role": "developer", "tools": []}),
            json!({"type": "message", "role": "user", "content": "Go."}),
            json!({"type": "compaction", "encrypted_content": "x"}),
            json!({"type": "reasoning", "summary": [], "encrypted_content": format!("{SEALED}sealed")}),
            json!({"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "+a"}),
            json!({"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"}),
            json!({"type": "local_shell_call", "call_id": "c2", "status": "completed",
                   "action": {"type": "exec", "command": ["ls"], "env": null}}),
            json!({"type": "local_shell_call_output", "id": "c2", "output": "{\"stdout\": \"a\"}"}),
            json!({"type": "shell_call", "call_id": "c3", "action": {"commands": ["ls"]}}),
            json!({"type": "shell_call_output", "call_id": "c3", "output": [{"stdout": "b", "stderr": ""}]}),
            json!({"type": "web_search_call", "id": "ws", "action": {"type": "search", "query": "ropes"}}),
            json!({"type": "tool_search_call", "call_id": "c4", "execution": "client", "arguments": {}}),
            json!({"type": "tool_search_output", "call_id": "c4", "execution": "client", "tools": []}),
            json!({"type": "agent_message", "author": "/root", "recipient": "b", "content": "hello"}),
        ];
        let got = messages(None, input).unwrap();
        let expected = [
            "user",
            "assistant",
            "tool",
            "assistant",
            "tool",
            "assistant",
            "tool",
            "assistant",
            "assistant",
            "user",
        ];
        assert_eq!(roles(&got), expected);
        assert_eq!(got[1]["reasoning_content"], "sealed");
        assert_eq!(got[1]["tool_calls"][0]["function"]["arguments"], json!({"input": "+a"}));
        assert_eq!(got[3]["tool_calls"][0]["function"]["arguments"], json!({"command": ["ls"]}));
        assert_eq!((&got[4]["tool_call_id"], &got[6]["tool_call_id"]), (&json!("c2"), &json!("c3")));
        assert_eq!(got[7]["content"], "[web search ropes]");
        assert_eq!(got[9]["content"], "/root: hello");
    }

    #[test]
    fn what_can_not_be_read_is_named() {
        let error = messages(None, vec![json!({"type": "hologram"})]).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("input.0"));
        let image = json!({"role": "user", "content": [{"type": "input_image", "image_url": "x"}]});
        assert!(messages(None, vec![image]).unwrap_err().message.contains("text only"));
        assert!(messages(None, vec![json!({"type": "function_call"}), json!(7)]).is_err());
    }
}
