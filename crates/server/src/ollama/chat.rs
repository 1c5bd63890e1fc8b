//! `POST /api/chat`.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use ropeway_generation::{
    Conversation, Ending, Finish, GenerationEvent, Job, OfferedTools, Prompt, RequestError, StopReason,
    ToolCall, ToolChoice, collect,
};
use ropeway_text::Delta;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::logprobs::{self, Logprobs};
use super::options::Options;
use super::stats::Stopwatch;
use super::think::Think;
use super::tolerance::null_is_default;
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
    #[serde(default, deserialize_with = "null_is_default")]
    messages: Vec<Value>,
    stream: Option<bool>,
    #[serde(default)]
    options: Options,
    tools: Option<Vec<Value>>,
    format: Option<Value>,
    think: Option<Value>,
    #[schema(value_type = Option<Value>)]
    keep_alive: Option<KeepAlive>,
    logprobs: Option<bool>,
    top_logprobs: Option<i64>,
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
        let think = Think::read(request.think.as_ref())?;
        let wish = presence::Wish { model: &request.model, keep_alive: request.keep_alive, think };
        let mut answer = presence::change(ask.app(), ask.client(), wish).await?;
        answer["message"] = json!({ "role": "assistant", "content": "" });
        return Ok(Json(answer).into_response());
    }
    let mut watch = Stopwatch::start();
    let Opened { request, model, caller } = ask.admit(request).await?;
    watch.loaded();
    presence::keep(&caller.rights, &model, request.keep_alive);
    let streams = request.stream != Some(false);
    let wanted = logprobs::wanted(request.logprobs, request.top_logprobs)?;
    let logprobs = Logprobs::new(&model, wanted);
    let events = generate(&model, request.into_job(&model, wanted)?, caller).await?;
    if streams {
        let mut lines = Lines { model, calls: Calls::default(), logprobs, watch };
        return Ok(ndjson::respond(events.flat_map(move |event| stream::iter(lines.of(event)))));
    }
    Ok(Json(whole(&model, events, logprobs, watch).await?).into_response())
}

impl ChatRequest {
    /// The job that answers it.
    fn into_job(self, model: &Model, logprobs: Option<u32>) -> Result<Job, RequestError> {
        let think = Think::read(self.think.as_ref())?;
        Think::check(think, model)?;
        let is_begun = self.messages.len() > 1 && self.messages.last().is_some_and(begins_answer);
        let conversation = Conversation {
            ending: if is_begun { Ending::Continue } else { Ending::Answer },
            messages: self.messages.into_iter().map(message).collect::<Result<_, _>>()?,
            tools: OfferedTools::of_functions(self.tools.unwrap_or_default()).callable(&ToolChoice::Auto)?,
            variables: Think::variables(think),
            reasoning: Think::is_told_apart(think),
            ..Conversation::default()
        };
        let structured = format::read(self.format)?;
        let options = model.derived.iter().fold(self.options, |given, derived| given.or(&derived.options()));
        let job = options.job(Prompt::Conversation(conversation), logprobs, model)?;
        Ok(Job { structured, ..job })
    }
}

/// Whether a last message is the beginning of the answer: the assistant's, without calls.
fn begins_answer(message: &Value) -> bool {
    message["role"] == "assistant" && message["tool_calls"].as_array().is_none_or(Vec::is_empty)
}

/// A message as templates know it.
pub fn message(mut given: Value) -> Result<Value, RequestError> {
    if given["images"].as_array().is_some_and(|images| !images.is_empty()) {
        return Err(RequestError::invalid("this model reads text only, not images").at("messages"));
    }
    let role = given["role"].as_str().unwrap_or_default().to_ascii_lowercase();
    if !["system", "user", "assistant", "tool"].contains(&role.as_str()) {
        let what = "a message's role is system, user, assistant or tool";
        return Err(RequestError::invalid(what).at("messages"));
    }
    let mut message = json!({ "role": role, "content": given["content"].as_str().unwrap_or_default() });
    for (theirs, ours) in [
        ("thinking", "reasoning_content"),
        ("tool_calls", "tool_calls"),
        ("tool_name", "name"),
        ("tool_call_id", "tool_call_id"),
    ] {
        match given.get_mut(theirs).map(Value::take) {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) if text.is_empty() => {}
            Some(value) => message[ours] = value,
        }
    }
    Ok(message)
}

async fn whole(
    model: &Model,
    events: ObservedStream,
    mut logprobs: Logprobs,
    watch: Stopwatch,
) -> Result<Value, OllamaError> {
    let choice = collect(events).await?.only()?;
    let mut message = json!({ "role": "assistant", "content": choice.text });
    if !choice.reasoning.is_empty() {
        message["thinking"] = choice.reasoning.into();
    }
    if !choice.tool_calls.is_empty() {
        message["tool_calls"] = choice.tool_calls.iter().enumerate().map(tool_call).collect();
    }
    let mut response = line(model, &message);
    logprobs.add(&choice.tokens);
    logprobs.attach(&mut response);
    watch.finish(&mut response, &choice.finish);
    Ok(response)
}

/// Ollama's clients want the arguments as an object, so a call goes out when it is complete.
#[derive(Default)]
struct Calls {
    open: Option<ToolCall>,
    done: usize,
}

impl Calls {
    /// The call that was open, as its message; the next one may be opened.
    fn close(&mut self) -> Option<Value> {
        let call = self.open.take()?;
        let index = self.done;
        self.done += 1;
        Some(json!({ "role": "assistant", "content": "", "tool_calls": [tool_call((index, &call))] }))
    }
}

/// A stream in the making.
struct Lines {
    model: Arc<Model>,
    calls: Calls,
    logprobs: Logprobs,
    watch: Stopwatch,
}

impl Lines {
    /// The lines about an event.
    fn of(&mut self, event: GenerationEvent) -> Vec<Value> {
        match event {
            GenerationEvent::Placed { .. }
            | GenerationEvent::PromptProgress { .. }
            | GenerationEvent::PromptLogprob(_) => Vec::new(),
            GenerationEvent::Output { deltas, tokens, .. } => {
                self.logprobs.add(&tokens);
                let of_delta = |delta| self.message(delta).map(|message| self.line(&message));
                deltas.into_iter().filter_map(of_delta).collect()
            }
            GenerationEvent::Finished {
                finish: Finish { reason: StopReason::Failed(error), .. }, ..
            } => vec![OllamaError::from(error).body()],
            GenerationEvent::Finished { finish, .. } => {
                let call = self.calls.close().map(|message| self.line(&message));
                let mut last = self.line(&json!({ "role": "assistant", "content": "" }));
                self.watch.finish(&mut last, &finish);
                call.into_iter().chain([last]).collect()
            }
        }
    }

    /// The message that a piece of the answer completes.
    fn message(&mut self, delta: Delta) -> Option<Value> {
        match delta {
            Delta::Text(text) => Some(json!({ "role": "assistant", "content": text })),
            Delta::Reasoning(text) => Some(json!({ "role": "assistant", "content": "", "thinking": text })),
            Delta::ToolCall { name, .. } => {
                let before = self.calls.close();
                self.calls.open = Some(ToolCall { name, arguments: String::new() });
                before
            }
            Delta::Arguments { json, .. } => {
                if let Some(call) = &mut self.calls.open {
                    call.arguments.push_str(&json);
                }
                None
            }
        }
    }

    fn line(&mut self, message: &Value) -> Value {
        let mut line = line(&self.model, message);
        self.logprobs.attach(&mut line);
        line
    }
}

fn tool_call((index, call): (usize, &ToolCall)) -> Value {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
    json!({ "function": { "index": index, "name": call.name, "arguments": arguments } })
}

fn line(model: &Model, message: &Value) -> Value {
    json!({ "model": model.name, "created_at": now_rfc3339(), "message": message, "done": false })
}
