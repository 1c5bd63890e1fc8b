//! A response object and its output items.

use std::sync::Arc;

use ropeway_engine::Usage;
use serde_json::{Value, json};

use super::request::ResponsesRequest;
use crate::error::ApiError;
use crate::generation::chat::{ChatWhole, ToolCall};
use crate::generation::{Stopped, TokenReport};
use crate::identity::{Identity, unique};
use crate::model::Model;
use crate::openai::{OpenAiError, logprobs};

/// Everything that renders a response.
pub struct Render {
    identity: Identity,
    model: Arc<Model>,
    request: ResponsesRequest,
}

impl Render {
    pub fn new(identity: Identity, model: Arc<Model>, request: ResponsesRequest) -> Self {
        Self { identity, model, request }
    }

    /// A finished response.
    pub fn whole(&self, whole: &ChatWhole) -> Value {
        let mut output = Vec::new();
        if !whole.reasoning.is_empty() {
            output.push(reasoning(&unique("rs_"), "completed", Some(&whole.reasoning)));
        }
        if !whole.text.is_empty() || whole.calls.is_empty() {
            let part = self.text_part(&whole.text, &whole.tokens);
            output.push(message(&unique("msg_"), status(&whole.stopped), &[part]));
        }
        for (index, call) in whole.calls.iter().enumerate() {
            // An answer that was cut was cut in its last call.
            let is_last = index + 1 == whole.calls.len();
            let status = if is_last { status(&whole.stopped) } else { "completed" };
            output.push(function_call(&unique("fc_"), &unique("call_"), status, call));
        }
        self.finished(output, &whole.stopped, usage_of(&whole.usage, whole.reasoning_tokens))
    }

    /// The response before there is any output.
    pub fn begun(&self) -> Value {
        let mut response = self.request.echo();
        response["id"] = self.identity.id.as_str().into();
        response["object"] = "response".into();
        response["created_at"] = self.identity.created.into();
        response["model"] = self.identity.model.as_str().into();
        response["status"] = "in_progress".into();
        response["output"] = json!([]);
        (response["error"], response["incomplete_details"], response["usage"]) =
            (Value::Null, Value::Null, Value::Null);
        response
    }

    /// The response with all of its output.
    pub fn finished(&self, output: Vec<Value>, stopped: &Stopped, usage: Value) -> Value {
        let mut response = self.begun();
        response["status"] = status(stopped).into();
        response["output"] = output.into();
        if *stopped == Stopped::Length {
            response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        }
        response["usage"] = usage;
        response
    }

    /// The response that could not be finished.
    pub fn failed(&self, error: ApiError) -> Value {
        let mut response = self.begun();
        response["status"] = "failed".into();
        let body = OpenAiError(error).body();
        response["error"] = json!({ "code": "server_error", "message": body["error"]["message"] });
        response
    }

    /// A message's only part.
    pub fn text_part(&self, text: &str, tokens: &[TokenReport]) -> Value {
        json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": self.logprobs(tokens) })
    }

    /// Log-probabilities of tokens, where they are wanted.
    pub fn logprobs(&self, tokens: &[TokenReport]) -> Value {
        if !self.request.wants_logprobs() {
            return json!([]);
        }
        logprobs::chat(&self.model.tokenizer, tokens)["content"].take()
    }
}

/// How a response or one of its items ended.
pub fn status(stopped: &Stopped) -> &'static str {
    match stopped {
        Stopped::End | Stopped::At(_) => "completed",
        Stopped::Length => "incomplete",
        Stopped::Failed(_) => "failed",
    }
}

/// What the model thought.
pub fn reasoning(id: &str, status: &str, text: Option<&str>) -> Value {
    let content: Vec<_> =
        text.into_iter().map(|text| json!({ "type": "reasoning_text", "text": text })).collect();
    json!({ "id": id, "type": "reasoning", "status": status, "summary": [], "content": content })
}

/// What the model says.
pub fn message(id: &str, status: &str, content: &[Value]) -> Value {
    json!({ "id": id, "type": "message", "status": status, "role": "assistant", "content": content })
}

/// What the model calls.
pub fn function_call(id: &str, call_id: &str, status: &str, call: &ToolCall) -> Value {
    json!({
        "id": id, "type": "function_call", "status": status,
        "call_id": call_id, "name": call.name, "arguments": call.arguments,
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
