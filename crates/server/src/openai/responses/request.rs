//! What clients send, and what of it a response repeats.

use ropeway_executor::SamplingParams;
use ropeway_generation::job::seed;
use ropeway_generation::{Conversation, Job, Prompt, RequestError, Sampling};
use ropeway_openai::{structured, tool_choice};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::input;
use crate::ask::Wire;
use crate::intake::shape::{Field, Holds};

/// What clients send.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ResponsesRequest {
    model: Option<String>,
    input: Value,
    instructions: Option<String>,
    max_output_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    seed: Option<i64>,
    top_logprobs: Option<u32>,
    #[serde(default)]
    include: Option<Vec<String>>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    text: Option<Value>,
    stream: Option<bool>,
    background: Option<bool>,
    previous_response_id: Option<Value>,
    conversation: Option<Value>,
    prompt: Option<Value>,
    user: Option<String>,
    session_id: Option<String>,
    safety_identifier: Option<String>,
    prompt_cache_key: Option<String>,
    priority: Option<String>,
    /// Cached prompts are shared only with requests of the same salt.
    cache_salt: Option<String>,
    metadata: Option<Value>,
}

impl Wire for ResponsesRequest {
    const FIELDS: &'static [Field] = &[
        Field::new("input", Holds::ConversationOrText),
        Field::new("instructions", Holds::Prompt),
        // What a response repeats.
        Field::new("tools", Holds::Conversation),
        Field::new("tool_choice", Holds::ConversationOrText),
        Field::new("text", Holds::Conversation),
        Field::new("metadata", Holds::Conversation),
    ];

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn user(&self) -> Option<&str> {
        let names = [&self.session_id, &self.prompt_cache_key, &self.safety_identifier, &self.user];
        names.into_iter().find_map(Option::as_deref)
    }

    fn session(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    fn priority(&self) -> Option<&str> {
        self.priority.as_deref()
    }

    fn cache_salt(&self) -> Option<&str> {
        self.cache_salt.as_deref()
    }
}

impl ResponsesRequest {
    /// Whether the answer is to be streamed.
    pub fn streams(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Whether the text's log-probabilities are wanted.
    pub fn wants_logprobs(&self) -> bool {
        self.include.iter().flatten().any(|what| what == "message.output_text.logprobs")
    }

    /// The job that answers it.
    pub fn into_job(self) -> Result<Job, RequestError> {
        self.check()?;
        let logprobs = self.wants_logprobs().then(|| self.top_logprobs.unwrap_or(0));
        if logprobs.is_none() && self.top_logprobs.is_some_and(|top| top > 0) {
            let what = "top_logprobs needs \"message.output_text.logprobs\" in include";
            return Err(RequestError::invalid(what).at("top_logprobs"));
        }
        let plain = SamplingParams::default();
        let sampling = Sampling::new(SamplingParams {
            temperature: self.temperature.unwrap_or(plain.temperature),
            top_p: self.top_p.unwrap_or(plain.top_p),
            seed: seed(self.seed),
            logprobs,
            ..plain
        })?;
        let format = self.format().cloned();
        let conversation = Conversation {
            messages: input::messages(self.instructions.as_deref(), self.input)?,
            tools: self.tools.into_iter().flatten().map(tool).collect::<Result<_, _>>()?,
            tool_choice: tool_choice::read(
                self.tool_choice.as_ref(),
                |named| named["name"].as_str().filter(|_| named["type"] == "function"),
                "tool_choice is none, auto, required or a function with a name",
            )?,
            reasoning: true,
            ..Conversation::default()
        };
        Ok(Job {
            max_tokens: self.max_output_tokens,
            structured: structured::response_format(format, "text.format")?,
            ..Job::with_sampling(Prompt::Conversation(conversation), sampling)
        })
    }

    fn format(&self) -> Option<&Value> {
        self.text.as_ref()?.get("format")
    }

    /// Turns down what can't be honoured.
    fn check(&self) -> Result<(), RequestError> {
        let given = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
        for (name, value) in
            [("previous_response_id", &self.previous_response_id), ("conversation", &self.conversation)]
        {
            if given(value) {
                let what = "responses are not kept here; send the whole conversation as input";
                return Err(RequestError::invalid(what).at(name));
            }
        }
        if given(&self.prompt) {
            let what = "there are no stored prompts here; send instructions and input";
            return Err(RequestError::invalid(what).at("prompt"));
        }
        if self.background == Some(true) {
            let what = "answers are not kept for later; leave background out, or stream";
            return Err(RequestError::invalid(what).at("background"));
        }
        Ok(())
    }

    /// What every response repeats of its request.
    pub fn echo(&self) -> Value {
        json!({
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata.clone().unwrap_or_else(|| json!({})),
            "parallel_tool_calls": true,
            "previous_response_id": null,
            "reasoning": { "effort": null, "summary": null },
            "store": false,
            "temperature": self.temperature.unwrap_or(1.0),
            "text": { "format": self.format().cloned().unwrap_or_else(|| json!({ "type": "text" })) },
            "tool_choice": self.tool_choice.clone().unwrap_or_else(|| json!("auto")),
            "tools": self.tools.clone().unwrap_or_default(),
            "top_logprobs": self.top_logprobs.unwrap_or(0),
            "top_p": self.top_p.unwrap_or(1.0),
            "truncation": "disabled",
            "user": self.user,
        })
    }
}

/// A tool as templates know it. Only functions: what OpenAI's own servers would run can't be run here.
fn tool(mut given: Value) -> Result<Value, RequestError> {
    let is_function = given["type"] == "function" && given["name"].is_string();
    let Some(fields) = given.as_object_mut().filter(|_| is_function) else {
        let what = format!("a tool is a function with a name here, not {}", given["type"]);
        return Err(RequestError::invalid(what).at("tools"));
    };
    fields.shift_remove("type");
    Ok(json!({ "type": "function", "function": given }))
}
