//! `POST /api/generate`.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, future};
use ropeway_executor::Sampled;
use ropeway_generation::{
    Conversation, Finish, GenerationEvent, Job, Prompt, RequestError, StopReason, collect, text_of,
};
use ropeway_openai::token_ids::TokenList;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::chat::thinking;
use super::options::Options;
use super::stats::Stopwatch;
use super::{OllamaError, format, presence};
use crate::ask::{Ask, Opened, Wire};
use crate::generation::{ObservedStream, prepare, submit};
use crate::intake::shape::{Field, Holds};
use crate::model::Model;
use crate::model::lease::KeepAlive;
use crate::ndjson;
use crate::time::now_rfc3339;

/// What clients send.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct GenerateRequest {
    model: String,
    #[serde(default)]
    prompt: String,
    suffix: Option<String>,
    system: Option<String>,
    template: Option<String>,
    raw: Option<bool>,
    stream: Option<bool>,
    format: Option<Value>,
    think: Option<Value>,
    images: Option<Vec<Value>>,
    /// Tokens of an earlier answer to go on from.
    #[schema(value_type = Option<Vec<u32>>)]
    context: Option<TokenList>,
    #[serde(default)]
    options: Options,
    #[schema(value_type = Option<Value>)]
    keep_alive: Option<KeepAlive>,
}

impl Wire for GenerateRequest {
    const FIELDS: &'static [Field] = &[
        Field::new("prompt", Holds::Prompt),
        Field::new("system", Holds::Prompt),
        Field::new("context", Holds::Tokens),
    ];

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }
}

pub async fn create(mut ask: Ask) -> Result<Response, OllamaError> {
    let request: GenerateRequest = ask.body().await?;
    if request.prompt.is_empty() {
        let mut answer =
            presence::change(ask.app(), ask.client(), &request.model, request.keep_alive).await?;
        answer["response"] = "".into();
        return Ok(Json(answer).into_response());
    }
    let Opened { request, model, caller } = ask.admit(request)?;
    presence::keep(&caller.rights, &model, request.keep_alive);
    let streams = request.stream != Some(false);
    let prepared = prepare(&model, request.into_job(model.context())?, &caller).await?;
    let mut context = prepared.request.prompt.clone();
    let events = submit(&model, prepared, caller)?;
    let watch = Stopwatch::start();
    if streams {
        return Ok(ndjson::respond(lines(model, events, context, watch)));
    }
    let choice = collect(events).await?.only()?;
    let mut response = line(&model, &choice.text);
    extend(&mut context, &choice.tokens);
    response["context"] = context.into();
    watch.finish(&mut response, &choice.finish);
    Ok(Json(response).into_response())
}

impl GenerateRequest {
    fn check(&self) -> Result<(), RequestError> {
        if self.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
            return Err(RequestError::invalid("this model can't fill in before a suffix; leave it out"));
        }
        if self.images.as_ref().is_some_and(|images| !images.is_empty()) {
            return Err(RequestError::invalid("this model reads text only, not images"));
        }
        if self.template.as_ref().is_some_and(|template| !template.is_empty()) {
            return Err(RequestError::invalid(
                "the model's own template is used; send raw: true with a rendered prompt",
            ));
        }
        Ok(())
    }

    /// The job that answers it. `context` is the model's.
    fn into_job(self, context: usize) -> Result<Job, RequestError> {
        self.check()?;
        let structured = format::read(self.format)?;
        if self.raw == Some(true) {
            return Ok(Job { structured, ..self.options.job(Prompt::Text(self.prompt), context)? });
        }
        let system = self.system.map(|system| json!({ "role": "system", "content": system }));
        let user = json!({ "role": "user", "content": self.prompt });
        let conversation = Conversation {
            messages: system.into_iter().chain([user]).collect(),
            variables: thinking(self.think.as_ref()),
            ..Conversation::default()
        };
        let job = self.options.job(Prompt::Conversation(conversation), context)?;
        let context = self.context.map(|context| context.read("context")).transpose()?;
        Ok(Job { structured, context: context.unwrap_or_default(), ..job })
    }
}

/// Adds an answer's tokens to those before it.
fn extend(context: &mut Vec<u32>, tokens: &[Sampled]) {
    context.extend(tokens.iter().map(|sampled| sampled.token));
}

fn lines(
    model: Arc<Model>,
    events: ObservedStream,
    mut context: Vec<u32>,
    watch: Stopwatch,
) -> impl Stream<Item = Value> + Send + 'static {
    events.filter_map(move |event| {
        future::ready(match event {
            GenerationEvent::PromptProgress { .. } | GenerationEvent::PromptLogprob(_) => None,
            GenerationEvent::Output { deltas, tokens, .. } => {
                extend(&mut context, &tokens);
                let text = text_of(deltas);
                (!text.is_empty()).then(|| line(&model, &text))
            }
            GenerationEvent::Finished {
                finish: Finish { reason: StopReason::Failed(error), .. }, ..
            } => Some(OllamaError::from(error).body()),
            GenerationEvent::Finished { finish, .. } => {
                let mut last = line(&model, "");
                last["context"] = std::mem::take(&mut context).into();
                watch.finish(&mut last, &finish);
                Some(last)
            }
        })
    })
}

fn line(model: &Model, text: &str) -> Value {
    json!({ "model": model.name, "created_at": now_rfc3339(), "response": text, "done": false })
}
