//! `POST /api/chat`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use ropeway_text::Delta;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::options::Options;
use super::stats::Stopwatch;
use super::{OllamaError, presence};
use crate::ask::{Ask, Opened, Wire};
use crate::error::ApiError;
use crate::generation::Stopped;
use crate::generation::chat::{ChatAnswer, ChatPiece, Conversation, ToolCall};
use crate::generation::structure::Structure;
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
    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }
}

pub async fn create(mut ask: Ask) -> Result<Response, OllamaError> {
    let request: ChatRequest = ask.body().await?;
    if request.messages.is_empty() {
        let mut answer = presence::change(ask.app(), &request.model, request.keep_alive).await?;
        answer["message"] = json!({ "role": "assistant", "content": "" });
        return Ok(Json(answer).into_response());
    }
    let Opened { request, model, caller } = ask.admit(request)?;
    presence::keep(&model, request.keep_alive);
    let watch = Stopwatch::start();
    let conversation = request.conversation()?;
    let mut job = conversation.job(&model, caller).await?;
    request.options.apply(&mut job, model.context())?;
    let answer = conversation.answer(&model, job)?;
    if request.stream == Some(false) {
        return Ok(Json(whole(&model, answer, watch).await?).into_response());
    }
    Ok(ndjson::respond(lines(model, answer, watch)))
}

impl ChatRequest {
    fn conversation(&self) -> Result<Conversation, ApiError> {
        Ok(Conversation {
            messages: self.messages.iter().map(message).collect::<Result<_, _>>()?,
            tools: self.tools.clone().unwrap_or_default(),
            variables: thinking(self.think.as_ref()),
            reasoning: self.think != Some(Value::Bool(false)),
            structure: Structure::ollama(self.format.as_ref())?,
            ..Conversation::default()
        })
    }
}

/// Models whose thinking can be switched listen to `enable_thinking`.
pub fn thinking(think: Option<&Value>) -> Map<String, Value> {
    let switch = think.map(|think| ("enable_thinking".to_owned(), Value::from(*think != Value::Bool(false))));
    switch.into_iter().collect()
}

/// A message as templates know it.
fn message(given: &Value) -> Result<Value, ApiError> {
    if given["images"].as_array().is_some_and(|images| !images.is_empty()) {
        return Err(ApiError::invalid("this model reads text only, not images"));
    }
    let Some(role @ ("system" | "user" | "assistant" | "tool")) = given["role"].as_str() else {
        return Err(ApiError::invalid("a message's role is system, user, assistant or tool"));
    };
    let mut message = json!({ "role": role, "content": given["content"].as_str().unwrap_or_default() });
    for (theirs, ours) in BTreeMap::from([
        ("tool_calls", "tool_calls"),
        ("thinking", "reasoning_content"),
        ("tool_name", "name"),
    ]) {
        if let Some(value) = given.get(theirs) {
            message[ours] = value.clone();
        }
    }
    Ok(message)
}

async fn whole(model: &Model, answer: ChatAnswer, watch: Stopwatch) -> Result<Value, OllamaError> {
    let whole = answer.whole().await?.pop().ok_or_else(|| ApiError::invalid("no answer"))?;
    let mut message = json!({ "role": "assistant", "content": whole.text });
    if !whole.reasoning.is_empty() {
        message["thinking"] = whole.reasoning.into();
    }
    if !whole.calls.is_empty() {
        message["tool_calls"] = whole.calls.iter().map(tool_call).collect();
    }
    let mut response = line(model, &message);
    watch.finish(&mut response, &whole.stopped, &whole.usage);
    Ok(response)
}

/// Ollama's clients want the arguments as an object, so a call goes out when it is complete.
fn lines(model: Arc<Model>, answer: ChatAnswer, watch: Stopwatch) -> impl futures_util::Stream<Item = Value> {
    let mut calls: Vec<ToolCall> = Vec::new();
    answer.flat_map(move |piece| {
        let mut out = Vec::new();
        match piece {
            ChatPiece::Reading => {}
            ChatPiece::Deltas { deltas, .. } => {
                for delta in deltas {
                    out.extend(delta_line(&model, delta, &mut calls));
                }
            }
            ChatPiece::Done { stopped: Stopped::Failed(error), .. } => out.push(OllamaError(error).body()),
            ChatPiece::Done { stopped, usage, .. } => {
                out.extend(calls.drain(..).map(|call| call_line(&model, &call)));
                let mut last = line(&model, &json!({ "role": "assistant", "content": "" }));
                watch.finish(&mut last, &stopped, &usage);
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
