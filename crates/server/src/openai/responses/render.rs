//! A response object and its output items.

use ropeway_engine::Usage;
use ropeway_executor::Sampled;
use ropeway_generation::{Choice, Identity, RequestError, StopReason, ToolCall, unique};
use ropeway_openai::logprobs;
use ropeway_text::Tokenizer;
use serde_json::{Value, json};

/// Everything that renders a response.
pub struct Render {
    /// The response's name.
    pub identity: Identity,
    /// For the texts of tokens.
    pub tokenizer: Tokenizer,
    /// Whether log-probabilities are wanted.
    pub wants_logprobs: bool,
    /// What the response repeats of its request.
    pub echo: Value,
}

impl Render {
    /// A finished response.
    pub fn whole(&self, choice: &Choice) -> Value {
        let mut output = Vec::new();
        if !choice.reasoning.is_empty() {
            output.push(reasoning(&unique("rs_"), "completed", Some(&choice.reasoning)));
        }
        if !choice.text.is_empty() || choice.tool_calls.is_empty() {
            let part = self.text_part(&choice.text, &choice.tokens);
            output.push(message(&unique("msg_"), status(&choice.finish.reason), &[part]));
        }
        for (index, call) in choice.tool_calls.iter().enumerate() {
            // An answer that was cut was cut in its last call.
            let is_last = index + 1 == choice.tool_calls.len();
            let status = if is_last { status(&choice.finish.reason) } else { "completed" };
            output.push(function_call(&unique("fc_"), &unique("call_"), status, call));
        }
        self.finished(
            output,
            &choice.finish.reason,
            usage_of(&choice.finish.usage, choice.finish.reasoning_tokens),
        )
    }

    /// The response before there is any output.
    pub fn begun(&self) -> Value {
        let mut response = self.echo.clone();
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
    pub fn finished(&self, output: Vec<Value>, reason: &StopReason, usage: Value) -> Value {
        let mut response = self.begun();
        response["status"] = status(reason).into();
        response["output"] = output.into();
        if *reason == StopReason::Length {
            response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        }
        response["usage"] = usage;
        response
    }

    /// The response that could not be finished.
    pub fn failed(&self, error: &RequestError) -> Value {
        let mut response = self.begun();
        response["status"] = "failed".into();
        response["error"] = json!({ "code": "server_error", "message": error.message });
        response
    }

    /// A message's only part.
    pub fn text_part(&self, text: &str, tokens: &[Sampled]) -> Value {
        json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": self.logprobs(tokens) })
    }

    /// Log-probabilities of tokens, where they are wanted.
    pub fn logprobs(&self, tokens: &[Sampled]) -> Value {
        if !self.wants_logprobs {
            return json!([]);
        }
        logprobs::chat(&self.tokenizer, tokens)["content"].take()
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
