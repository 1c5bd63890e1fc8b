//! `POST /api/generate`.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, future};
use ropeway_generation::{
    Choice, Conversation, Finish, GenerationEvent, Job, Prompt, RequestError, StopReason, collect,
};
use ropeway_openai::token_ids::TokenList;
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
use crate::generation::{prepare, submit};
use crate::intake::shape::{Field, Holds};
use crate::model::Model;
use crate::model::lease::KeepAlive;
use crate::ndjson;
use crate::time::now_rfc3339;

/// What clients send.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct GenerateRequest {
    model: String,
    #[serde(default, deserialize_with = "null_is_default")]
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
    logprobs: Option<bool>,
    top_logprobs: Option<i64>,
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
        let think = Think::read(request.think.as_ref())?;
        let wish = presence::Wish { model: &request.model, keep_alive: request.keep_alive, think };
        let mut answer = presence::change(ask.app(), ask.client(), wish).await?;
        answer["response"] = "".into();
        return Ok(Json(answer).into_response());
    }
    let mut watch = Stopwatch::start();
    let Opened { request, model, caller } = ask.admit(request).await?;
    watch.loaded();
    presence::keep(&caller.rights, &model, request.keep_alive);
    let streams = request.stream != Some(false);
    let wanted = logprobs::wanted(request.logprobs, request.top_logprobs)?;
    let prepared = prepare(&model, request.into_job(&model, wanted)?, &caller).await?;
    let context = prepared.request.prompt.clone();
    let events = submit(&model, prepared, caller)?;
    let mut lines = Lines { logprobs: Logprobs::new(&model, wanted), model, context, watch };
    if streams {
        return Ok(ndjson::respond(events.filter_map(move |event| future::ready(lines.of(event)))));
    }
    Ok(Json(lines.whole(collect(events).await?.only()?)).into_response())
}

/// Whether a field of a text says anything: Go's clients send all of them, most of them empty.
fn is_given(text: Option<&String>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

impl GenerateRequest {
    fn check(&self, model: &Model) -> Result<(), RequestError> {
        if is_given(self.suffix.as_ref()) && !model.generator.fills_in() {
            let what = format!("{:?} does not support insert: it can't fill in before a suffix", model.name);
            return Err(RequestError::invalid(what).at("suffix"));
        }
        if self.images.as_ref().is_some_and(|images| !images.is_empty()) {
            return Err(RequestError::invalid("this model reads text only, not images").at("images"));
        }
        let has_template = is_given(self.template.as_ref());
        let has_context = self.context.as_ref().is_some_and(|context| !context.is_empty());
        if self.raw == Some(true) && (has_template || is_given(self.system.as_ref()) || has_context) {
            let what =
                "raw mode does not support template, system, or context: the prompt is continued as it is";
            return Err(RequestError::invalid(what).at("raw"));
        }
        let own_template = model.generator.token_model().map_or("", |model| model.template.source());
        if has_template && self.template.as_deref() != Some(own_template) {
            let what = "the model's own template is used; make a model with another one by POST /api/create, or send \
                        raw: true with a rendered prompt";
            return Err(RequestError::invalid(what).at("template"));
        }
        Ok(())
    }

    /// The job that answers it.
    fn into_job(self, model: &Model, logprobs: Option<u32>) -> Result<Job, RequestError> {
        self.check(model)?;
        let think = Think::read(self.think.as_ref())?;
        Think::check(think, model)?;
        let structured = format::read(self.format)?;
        let options = model.derived.iter().fold(self.options, |given, derived| given.or(&derived.options()));
        if let Some(suffix) = self.suffix.filter(|suffix| !suffix.is_empty()) {
            let prompt = Prompt::Between { prefix: self.prompt, suffix };
            return Ok(Job { structured, ..options.job(prompt, logprobs, model)? });
        }
        if self.raw == Some(true) {
            let job = options.job(Prompt::Text(self.prompt), logprobs, model)?;
            return Ok(Job { structured, ..job });
        }
        let system = self.system.filter(|system| !system.is_empty());
        let system = system.map(|system| json!({ "role": "system", "content": system }));
        let user = json!({ "role": "user", "content": self.prompt });
        let conversation = Conversation {
            messages: system.into_iter().chain([user]).collect(),
            variables: Think::variables(think),
            reasoning: Think::is_told_apart(think),
            ..Conversation::default()
        };
        let job = options.job(Prompt::Conversation(conversation), logprobs, model)?;
        let context = self.context.map(|context| context.read("context")).transpose()?;
        Ok(Job { structured, context: context.unwrap_or_default(), ..job })
    }
}

/// An answer in the making.
struct Lines {
    model: Arc<Model>,
    /// The tokens of prompt and answer, for clients that go on from them.
    context: Vec<u32>,
    logprobs: Logprobs,
    watch: Stopwatch,
}

impl Lines {
    /// The line about an event, if it has one.
    fn of(&mut self, event: GenerationEvent) -> Option<Value> {
        match event {
            GenerationEvent::Placed { .. }
            | GenerationEvent::PromptProgress { .. }
            | GenerationEvent::PromptLogprob(_) => None,
            GenerationEvent::Output { deltas, tokens, .. } => {
                self.logprobs.add(&tokens);
                self.context.extend(tokens.iter().map(|sampled| sampled.token));
                let (text, thinking) = (text_of(&deltas), reasoning_of(&deltas));
                (!text.is_empty() || !thinking.is_empty()).then(|| self.line(&text, thinking))
            }
            GenerationEvent::Finished {
                finish: Finish { reason: StopReason::Failed(error), .. }, ..
            } => Some(OllamaError::from(error).body()),
            GenerationEvent::Finished { finish, .. } => Some(self.last("", String::new(), &finish)),
        }
    }

    /// The whole answer as one object.
    fn whole(mut self, choice: Choice) -> Value {
        self.logprobs.add(&choice.tokens);
        self.context.extend(choice.tokens.iter().map(|sampled| sampled.token));
        self.last(&choice.text, choice.reasoning, &choice.finish)
    }

    fn last(&mut self, text: &str, thinking: String, finish: &Finish) -> Value {
        let mut last = self.line(text, thinking);
        if !self.context.is_empty() {
            last["context"] = std::mem::take(&mut self.context).into();
        }
        self.watch.finish(&mut last, finish);
        last
    }

    fn line(&mut self, text: &str, thinking: String) -> Value {
        let (model, now) = (&self.model.name, now_rfc3339());
        let mut line = json!({ "model": model, "created_at": now, "response": text, "done": false });
        if !thinking.is_empty() {
            line["thinking"] = thinking.into();
        }
        self.logprobs.attach(&mut line);
        line
    }
}

fn text_of(deltas: &[Delta]) -> String {
    deltas
        .iter()
        .filter_map(|delta| if let Delta::Text(text) = delta { Some(text.as_str()) } else { None })
        .collect()
}

fn reasoning_of(deltas: &[Delta]) -> String {
    let reasoning =
        |delta: &Delta| if let Delta::Reasoning(text) = delta { Some(text.clone()) } else { None };
    deltas.iter().filter_map(reasoning).collect()
}
