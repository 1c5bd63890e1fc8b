//! `POST /api/chat`.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use ropeway_generation::{
    Conversation, Finish, GenerationEvent, Job, OfferedTools, Prompt, RequestError, StopReason, ToolCall,
    ToolChoice, collect,
};
use ropeway_text::Delta;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::options::Options;
use super::stats::Stopwatch;
use super::{OllamaError, format, presence};
use crate::ask::{Ask, Opened, Wire};
use crate::generation::{ObservedStream, generate};
use crate::intake::shape::{Field, Holds};
use crate::model::Model;
use crate::model::lease::KeepAlive;
use crate::ndjson;
use crate::time::now_rfc3339;

/// What clients send.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ChatRequest {
    model: String,
    #[serde(default)]
    messages: Vec<Value>,
    stream: Option<bool>,
    #[serde(default)]
    options: Options,
    tools: Option<Vec<Value>>,
    format: Option<Value>,
    think: Option<Value>,
    #[schema(value_type = Option<Value>)]
    keep_alive: Option<KeepAlive>,
}

impl Wire for ChatRequest {
    const FIELDS: &'static [Field] =
        &[Field::new("messages", Holds::Conversation), Field::new("tools", Holds::Conversation)];

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }
}

pub async fn create(mut ask: Ask) -> Result<Response, OllamaError> {
    let request: ChatRequest = ask.body().await?;
    if request.messages.is_empty() {
        let mut answer =
            presence::change(ask.app(), ask.client(), &request.model, request.keep_alive).await?;
        answer["message"] = json!({ "role": "assistant", "content": "" });
        return Ok(Json(answer).into_response());
    }
    let Opened { request, model, caller } = ask.admit(request)?;
    presence::keep(&caller.rights, &model, request.keep_alive);
    let watch = Stopwatch::start();
    let streams = request.stream != Some(false);
    let events = generate(&model, request.into_job(model.context())?, caller).await?;
    if streams {
        return Ok(ndjson::respond(lines(model, events, watch)));
    }
    Ok(Json(whole(&model, events, watch).await?).into_response())
}

impl ChatRequest {
    /// The job that answers it. `context` is the model's.
    fn into_job(self, context: usize) -> Result<Job, RequestError> {
        let conversation = Conversation {
            messages: self.messages.into_iter().map(message).collect::<Result<_, _>>()?,
            tools: OfferedTools::of_functions(self.tools.unwrap_or_default()).callable(&ToolChoice::Auto)?,
            variables: thinking(self.think.as_ref()),
            reasoning: self.think != Some(Value::Bool(false)),
            ..Conversation::default()
        };
        let structured = format::read(self.format)?;
        Ok(Job { structured, ..self.options.job(Prompt::Conversation(conversation), context)? })
    }
}

/// Models whose thinking can be switched listen to `enable_thinking`.
pub fn thinking(think: Option<&Value>) -> Map<String, Value> {
    let switch = think.map(|think| ("enable_thinking".to_owned(), Value::from(*think != Value::Bool(false))));
    switch.into_iter().collect()
}

/// A message as templates know it.
fn message(mut given: Value) -> Result<Value, RequestError> {
    if given["images"].as_array().is_some_and(|images| !images.is_empty()) {
        return Err(RequestError::invalid("this model reads text only, not images"));
    }
    let Some(role @ ("system" | "user" | "assistant" | "tool")) = given["role"].as_str() else {
        return Err(RequestError::invalid("a message's role is system, user, assistant or tool"));
    };
    let mut message = json!({ "role": role, "content": given["content"].as_str().unwrap_or_default() });
    for (theirs, ours) in
        [("thinking", "reasoning_content"), ("tool_calls", "tool_calls"), ("tool_name", "name")]
    {
        if let Some(value) = given.get_mut(theirs) {
            message[ours] = value.take();
        }
    }
    Ok(message)
}

async fn whole(model: &Model, events: ObservedStream, watch: Stopwatch) -> Result<Value, OllamaError> {
    let choice = collect(events).await?.only()?;
    let mut message = json!({ "role": "assistant", "content": choice.text });
    if !choice.reasoning.is_empty() {
        message["thinking"] = choice.reasoning.into();
    }
    if !choice.tool_calls.is_empty() {
        message["tool_calls"] = choice.tool_calls.iter().map(tool_call).collect();
    }
    let mut response = line(model, &message);
    watch.finish(&mut response, &choice.finish);
    Ok(response)
}

/// Ollama's clients want the arguments as an object, so a call goes out when it is complete.
fn lines(
    model: Arc<Model>,
    events: ObservedStream,
    watch: Stopwatch,
) -> impl futures_util::Stream<Item = Value> {
    let mut calls: Vec<ToolCall> = Vec::new();
    events.flat_map(move |event| {
        let mut out = Vec::new();
        match event {
            GenerationEvent::PromptProgress { .. } | GenerationEvent::PromptLogprob(_) => {}
            GenerationEvent::Output { deltas, .. } => {
                for delta in deltas {
                    out.extend(delta_line(&model, delta, &mut calls));
                }
            }
            GenerationEvent::Finished {
                finish: Finish { reason: StopReason::Failed(error), .. }, ..
            } => {
                out.push(OllamaError::from(error).body());
            }
            GenerationEvent::Finished { finish, .. } => {
                out.extend(calls.drain(..).map(|call| call_line(&model, &call)));
                let mut last = line(&model, &json!({ "role": "assistant", "content": "" }));
                watch.finish(&mut last, &finish);
                out.push(last);
            }
        }
        stream::iter(out)
    })
}

fn delta_line(model: &Model, delta: Delta, calls: &mut Vec<ToolCall>) -> Option<Value> {
    match delta {
        Delta::Text(text) => Some(line(model, &json!({ "role": "assistant", "content": text }))),
        Delta::Reasoning(text) => {
            Some(line(model, &json!({ "role": "assistant", "content": "", "thinking": text })))
        }
        Delta::ToolCall { name, .. } => {
            let before = calls.pop().map(|call| call_line(model, &call));
            calls.push(ToolCall { name, arguments: String::new() });
            before
        }
        Delta::Arguments { json, .. } => {
            if let Some(call) = calls.last_mut() {
                call.arguments.push_str(&json);
            }
            None
        }
    }
}

fn call_line(model: &Model, call: &ToolCall) -> Value {
    line(model, &json!({ "role": "assistant", "content": "", "tool_calls": [tool_call(call)] }))
}

fn tool_call(call: &ToolCall) -> Value {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
    json!({ "function": { "name": call.name, "arguments": arguments } })
}

fn line(model: &Model, message: &Value) -> Value {
    json!({ "model": model.name, "created_at": now_rfc3339(), "message": message, "done": false })
}
