//! A response object and its output items.

use ropeway_engine::Usage;
use ropeway_executor::Sampled;
use ropeway_generation::{Identity, RequestError, StopReason, ToolCall};
use ropeway_openai::logprobs;
use ropeway_text::Tokenizer;
use serde_json::{Value, json};

use super::input::SEALED;
use super::request::Included;
use super::tools::{CallKind, ToolForm, Toolbox};
use crate::model::unix_seconds;

/// Everything that renders a response.
pub struct Render {
    /// The response's name.
    pub identity: Identity,
    /// For the texts of tokens; where there is none, no log-probabilities were asked for.
    pub tokenizer: Option<Tokenizer>,
    /// Whether it runs on without its client.
    pub is_background: bool,
    /// What is in it beside the usual.
    pub included: Included,
    /// The tools that may be called.
    pub tools: Toolbox,
    /// What the response repeats of its request.
    pub echo: Value,
}

impl Render {
    /// The response before there is any output.
    pub fn begun(&self, status: &str) -> Value {
        let mut response = self.echo.clone();
        response["id"] = self.identity.id.as_str().into();
        response["object"] = "response".into();
        response["created_at"] = self.identity.created.into();
        response["model"] = self.identity.model.as_str().into();
        response["status"] = status.into();
        response["output"] = json!([]);
        for nothing in ["completed_at", "error", "incomplete_details", "usage"] {
            response[nothing] = Value::Null;
        }
        response
    }

    /// The response with all of its output.
    pub fn finished(&self, output: Vec<Value>, reason: &StopReason, usage: Value) -> Value {
        let mut response = self.begun(status(reason));
        response["output"] = output.into();
        if *reason == StopReason::Length {
            response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        } else {
            response["completed_at"] = unix_seconds().into();
        }
        response["usage"] = usage;
        response
    }

    /// The response that could not be finished.
    pub fn failed(&self, error: &RequestError) -> Value {
        let mut response = self.begun("failed");
        let code = error.kind.code().unwrap_or("server_error");
        response["error"] = json!({ "code": code, "message": error.message });
        response
    }

    /// A message's only part.
    pub fn text_part(&self, text: &str, tokens: &[Sampled]) -> Value {
        json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": self.logprobs(tokens) })
    }

    /// Log-probabilities of tokens, where they are wanted.
    pub fn logprobs(&self, tokens: &[Sampled]) -> Value {
        let tokenizer = self.tokenizer.as_ref().filter(|_| self.included.logprobs);
        tokenizer.map_or_else(|| json!([]), |tokenizer| logprobs::chat(tokenizer, tokens)["content"].take())
    }

    /// What the model thought. Clients that keep responses themselves send it back sealed.
    pub fn reasoning(&self, id: &str, status: &str, text: Option<&str>) -> Value {
        let content: Vec<_> =
            text.iter().map(|text| json!({ "type": "reasoning_text", "text": text })).collect();
        let mut item =
            json!({ "id": id, "type": "reasoning", "status": status, "summary": [], "content": content });
        if self.included.sealed_reasoning {
            item["encrypted_content"] = text.map(|text| format!("{SEALED}{text}")).into();
        }
        item
    }
}

/// How a response or one of its items ended.
pub fn status(reason: &StopReason) -> &'static str {
    match reason {
        StopReason::EndOfText | StopReason::StopString(_) => "completed",
        StopReason::Length => "incomplete",
        StopReason::Failed(_) => "failed",
    }
}

/// What the model says.
pub fn message(id: &str, status: &str, content: &[Value]) -> Value {
    json!({ "id": id, "type": "message", "status": status, "role": "assistant", "content": content })
}

/// The ids of a call.
pub struct CallIds {
    /// The item's.
    pub item: String,
    /// The one that its output names.
    pub call: String,
}

/// What the model calls, as its client knows it.
pub fn call(ids: &CallIds, status: &str, form: &ToolForm, call: &ToolCall) -> Value {
    let mut item = json!({ "id": ids.item, "call_id": ids.call, "status": status });
    match form.kind {
        CallKind::Function => {
            item["type"] = "function_call".into();
            item["arguments"] = call.arguments.as_str().into();
        }
        CallKind::Custom => {
            item["type"] = "custom_tool_call".into();
            item["input"] = custom_input(&call.arguments).into();
        }
        CallKind::LocalShell => {
            item["type"] = "local_shell_call".into();
            item["action"] = shell_action(&call.arguments);
            return item;
        }
    }
    item["name"] = form.name.as_str().into();
    if let Some(namespace) = &form.namespace {
        item["namespace"] = namespace.as_str().into();
    }
    item
}

/// The text for a tool that takes one. Models that do not keep to `input` mean everything they wrote.
pub fn custom_input(arguments: &str) -> String {
    let parsed: Option<Value> = serde_json::from_str(arguments).ok();
    let input = parsed.as_ref().and_then(|parsed| parsed["input"].as_str());
    input.unwrap_or(arguments).to_owned()
}

/// The command for a shell. Models that write it as one text mean a line for the shell.
fn shell_action(arguments: &str) -> Value {
    let given: Value = serde_json::from_str(arguments).unwrap_or_default();
    let command = match &given["command"] {
        Value::String(line) => json!(["bash", "-lc", line]),
        Value::Array(words) => words.iter().filter(|word| word.is_string()).cloned().collect(),
        _ => json!([]),
    };
    json!({
        "type": "exec", "command": command, "env": {},
        "timeout_ms": given["timeout_ms"].as_u64(), "working_directory": given["working_directory"].as_str(),
    })
}

/// Token counts, those of thoughts among them.
pub fn usage_of(used: &Usage, reasoning: usize) -> Value {
    json!({
        "input_tokens": used.prompt,
        "input_tokens_details": { "cached_tokens": used.cached },
        "output_tokens": used.generated,
        "output_tokens_details": { "reasoning_tokens": reasoning },
        "total_tokens": used.prompt + used.generated,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_come_back_in_the_form_that_their_tool_has() {
        let tools = Toolbox::read(vec![
            json!({"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}),
            json!({"type": "custom", "name": "patch"}),
            json!({"type": "local_shell"}),
        ])
        .unwrap();
        let ids = CallIds { item: "i".into(), call: "c".into() };
        let called = |name: &str, arguments: &str| {
            let one = ToolCall { name: name.into(), arguments: arguments.into() };
            call(&ids, "completed", &tools.form(name), &one)
        };
        let function = called("n__f", "{}");
        assert_eq!(
            (&function["type"], &function["namespace"], &function["name"], &function["arguments"]),
            (&json!("function_call"), &json!("n"), &json!("f"), &json!("{}"))
        );
        let custom = called("patch", "{\"input\": \"+a\\n\"}");
        assert_eq!((&custom["type"], &custom["input"]), (&json!("custom_tool_call"), &json!("+a\n")));
        assert_eq!(called("patch", "{\"text\": 1}")["input"], "{\"text\": 1}");
        let shell = called("local_shell", "{\"command\": [\"ls\", 5]}");
        assert_eq!(
            (&shell["type"], &shell["action"]["command"]),
            (&json!("local_shell_call"), &json!(["ls"]))
        );
        assert_eq!(called("local_shell", "{\"command\": \"ls\"}")["action"]["command"][2], "ls");
    }
}
