//! `POST /api/generate`.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, future};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::chat::thinking;
use super::options::Options;
use super::stats::Stopwatch;
use super::{OllamaError, presence};
use crate::ask::{Ask, Opened, Wire};
use crate::error::ApiError;
use crate::generation::chat::Conversation;
use crate::generation::structure::Structure;
use crate::generation::{Answer, Caller, Job, Piece, Stopped, text_prompt};
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
    context: Option<Vec<u32>>,
    #[serde(default)]
    options: Options,
    #[schema(value_type = Option<Value>)]
    keep_alive: Option<KeepAlive>,
}

impl Wire for GenerateRequest {
    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }
}

pub async fn create(mut ask: Ask) -> Result<Response, OllamaError> {
    let request: GenerateRequest = ask.body().await?;
    if request.prompt.is_empty() {
        let mut answer = presence::change(ask.app(), &request.model, request.keep_alive).await?;
        answer["response"] = "".into();
        return Ok(Json(answer).into_response());
    }
    let Opened { request, model, caller } = ask.admit(request)?;
    presence::keep(&model, request.keep_alive);
    request.check()?;
    let mut job = request.job(&model, caller).await?;
    request.options.apply(&mut job, model.context())?;
    let mut known = job.prompt.clone();
    let answer = job.submit(&model)?;
    let watch = Stopwatch::start();
    if request.stream == Some(false) {
        let whole = answer.whole().await?.0.pop().ok_or_else(|| ApiError::invalid("no answer"))?;
        let mut response = line(&model, &whole.text);
        known.extend(whole.tokens.iter().map(|report| report.sampled.token));
        response["context"] = known.into();
        watch.finish(&mut response, &whole.stopped, &whole.usage);
        return Ok(Json(response).into_response());
    }
    Ok(ndjson::respond(lines(model, answer, known, watch)))
}

impl GenerateRequest {
    fn check(&self) -> Result<(), ApiError> {
        if self.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
            return Err(ApiError::invalid("this model can't fill in before a suffix; leave it out"));
        }
        if self.images.as_ref().is_some_and(|images| !images.is_empty()) {
            return Err(ApiError::invalid("this model reads text only, not images"));
        }
        if self.template.as_ref().is_some_and(|template| !template.is_empty()) {
            return Err(ApiError::invalid(
                "the model's own template is used; send raw: true with a rendered prompt",
            ));
        }
        Ok(())
    }

    async fn job(&self, model: &Arc<Model>, caller: Caller) -> Result<Job, ApiError> {
        let structure = Structure::ollama(self.format.as_ref())?;
        if self.raw == Some(true) {
            let mut job =
                Job { continues: true, ..Job::new(text_prompt(model, &self.prompt).await?, caller) };
            if let Some(structure) = structure {
                job.grammar = Some(structure.compile(model, &self.prompt).await?);
            }
            return Ok(job);
        }
        let system = self.system.as_ref().map(|system| json!({ "role": "system", "content": system }));
        let user = json!({ "role": "user", "content": self.prompt });
        let conversation = Conversation {
            messages: system.into_iter().chain([user]).collect(),
            variables: thinking(self.think.as_ref()),
            structure,
            ..Conversation::default()
        };
        let mut job = conversation.job(model, caller).await?;
        if let Some(context) = &self.context {
            job.prompt = [context.clone(), job.prompt].concat();
        }
        Ok(job)
    }
}

fn lines(
    model: Arc<Model>,
    answer: Answer,
    mut known: Vec<u32>,
    watch: Stopwatch,
) -> impl Stream<Item = Value> + Send + 'static {
    answer.filter_map(move |piece| {
        future::ready(match piece {
            Piece::Reading | Piece::Scored(_) => None,
            Piece::Text { text, tokens, .. } => {
                known.extend(tokens.iter().map(|report| report.sampled.token));
                (!text.is_empty()).then(|| line(&model, &text))
            }
            Piece::Done { stopped: Stopped::Failed(error), .. } => Some(OllamaError(error).body()),
            Piece::Done { stopped, usage, .. } => {
                let mut last = line(&model, "");
                last["context"] = std::mem::take(&mut known).into();
                watch.finish(&mut last, &stopped, &usage);
                Some(last)
            }
        })
    })
}

fn line(model: &Model, text: &str) -> Value {
    json!({ "model": model.name, "created_at": now_rfc3339(), "response": text, "done": false })
}
