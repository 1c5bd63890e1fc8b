//! `POST /v1/messages` and `/v1/messages/count_tokens`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use ropeway_executor::SamplingParams;
use ropeway_generation::sampling::random_seed;
use ropeway_generation::{Conversation, Ending, Identity, Job, Prompt, RequestError, Sampling, collect};
use ropeway_openai::stops::StopTexts;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::{AnthropicError, format, render, stream, translate};
use crate::ask::{Ask, Opened, Wire};
use crate::generation::{encode, generate};
use crate::intake::shape::{Field, Holds};

/// What clients send.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct MessagesRequest {
    model: String,
    messages: Vec<Value>,
    max_tokens: Option<usize>,
    system: Option<Value>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    #[schema(value_type = Option<Vec<String>>)]
    stop_sequences: Option<StopTexts>,
    stream: Option<bool>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    thinking: Option<Value>,
    metadata: Option<Value>,
    output_config: Option<Value>,
    output_format: Option<Value>,
}

impl Wire for MessagesRequest {
    const FIELDS: &'static [Field] = &[
        Field::new("messages", Holds::Conversation),
        Field::new("system", Holds::ConversationOrText),
        Field::new("tools", Holds::Conversation),
    ];

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }

    fn user(&self) -> Option<&str> {
        self.metadata.as_ref()?["user_id"].as_str()
    }
}

pub async fn create(ask: Ask) -> Result<Response, AnthropicError> {
    let Opened::<MessagesRequest> { request, model, caller } = ask.open().await?;
    let streams = request.stream == Some(true);
    let defaults = model.sampling(SamplingParams { seed: random_seed(), ..SamplingParams::default() });
    let events = generate(&model, request.into_job(defaults)?, caller).await?;
    let identity = Identity::new("msg_", &model.name);
    if streams {
        return Ok(stream::respond(&identity, events));
    }
    let choice = collect(events).await?.only()?;
    Ok(Json(render::message(&identity, &choice)).into_response())
}

pub async fn count_tokens(ask: Ask) -> Result<Json<Value>, AnthropicError> {
    let Opened::<MessagesRequest> { request, model, caller } = ask.open().await?;
    let prompt = encode(&model, Prompt::Conversation(request.conversation()?), &caller.intake).await?;
    caller.spend(prompt.len());
    Ok(Json(json!({ "input_tokens": prompt.len() })))
}

impl MessagesRequest {
    /// The job that answers it.
    fn into_job(mut self, defaults: SamplingParams) -> Result<Job, RequestError> {
        let Some(max_tokens) = self.max_tokens else {
            return Err(RequestError::invalid("how many tokens may the answer have?").at("max_tokens"));
        };
        let sampling = Sampling::new(SamplingParams {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            ..defaults
        })?;
        let config = self.output_config.as_mut().and_then(|config| config.get_mut("format"));
        let structured = format::read(config.map(Value::take).or(self.output_format.take()))?;
        let stop = self.stop_sequences.take().unwrap_or_default().into_texts();
        let prompt = Prompt::Conversation(self.conversation()?);
        let max_tokens = Some(max_tokens);
        Ok(Job { max_tokens, stop, structured, ..Job::with_sampling(prompt, sampling) })
    }

    fn conversation(self) -> Result<Conversation, RequestError> {
        let choice = self.tool_choice.as_ref();
        let tool_choice = translate::tool_choice(choice)?;
        Ok(Conversation {
            tools: translate::tools(self.tools.unwrap_or_default()).callable(&tool_choice)?,
            tool_choice,
            single_call: choice.is_some_and(|choice| choice["disable_parallel_tool_use"] == true),
            variables: variables(self.thinking.as_ref()),
            reasoning: true,
            ending: ending(&self.messages),
            messages: translate::messages(self.system, self.messages)?,
            ..Conversation::default()
        })
    }
}

/// A last message of the assistant's is the beginning of its answer.
fn ending(messages: &[Value]) -> Ending {
    let is_begun = messages.len() > 1 && messages.last().is_some_and(|last| last["role"] == "assistant");
    if is_begun { Ending::Continue } else { Ending::Answer }
}

/// Models whose thinking can be switched listen to `enable_thinking`.
fn variables(thinking: Option<&Value>) -> Map<String, Value> {
    let kind = thinking.and_then(|thinking| thinking["type"].as_str());
    let switch = kind.map(|kind| ("enable_thinking".to_owned(), Value::from(kind != "disabled")));
    switch.into_iter().collect()
}
