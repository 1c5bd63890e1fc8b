//! `POST /generate/batch`: many prompts, results in their order; one bad prompt is one error.

use std::time::Instant;

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, future, stream};
use ropeway_generation::{Choice, Collector, GenerationEvent, Prompt, collect, text_of};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::request::{Parameters, result};
use crate::ask::{Ask, Opened, Wire};
use crate::error::ApiError;
use crate::generation::{ObservedStream, prepare_all, submit};
use crate::intake::shape::{Field, Holds};
use crate::ndjson;
use crate::openai::OpenAiError;

/// Prompts of one request: half of the places in the engine's queue, which is less than one client may take.
const MOST_PROMPTS: usize = 512;

#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct BatchRequest {
    prompts: Vec<String>,
    #[serde(flatten)]
    parameters: Parameters,
}

impl Wire for BatchRequest {
    const FIELDS: &'static [Field] = &[Field::new("prompts", Holds::PromptList(MOST_PROMPTS))];

    fn model(&self) -> Option<&str> {
        self.parameters.model()
    }

    fn user(&self) -> Option<&str> {
        self.parameters.session_id()
    }

    fn session(&self) -> Option<&str> {
        self.parameters.session_id()
    }

    fn cache_salt(&self) -> Option<&str> {
        self.parameters.cache_salt()
    }
}

pub async fn create(ask: Ask) -> Result<Response, OpenAiError> {
    let Opened::<BatchRequest> { request, model, caller } = ask.open().await?;
    if request.prompts.len() > MOST_PROMPTS {
        let message = format!("at most {MOST_PROMPTS} prompts in one request; send the rest in another");
        return Err(ApiError::invalid(message).about("prompts").into());
    }
    let began = Instant::now();
    let jobs = request.prompts.iter().map(|prompt| request.parameters.job(Prompt::Text(prompt.clone())));
    let prepared = prepare_all(&model, jobs.collect::<Result<_, _>>()?, &caller).await?;
    let submitted = |prepared: Result<_, _>| submit(&model, prepared?, caller.clone());
    let streams: Vec<_> = prepared.into_iter().map(submitted).collect();
    if request.parameters.stream {
        return Ok(ndjson::respond(lines(request.prompts, streams, began)));
    }
    let results = future::join_all(streams.into_iter().map(finish)).await;
    Ok(Json(summary(&request.prompts, &results, began)).into_response())
}

async fn finish(events: Result<ObservedStream, ApiError>) -> Result<Choice, ApiError> {
    Ok(collect(events?).await?.only()?)
}

fn summary(prompts: &[String], results: &[Result<Choice, ApiError>], began: Instant) -> Value {
    let one = |(prompt, choice): (&String, &Result<Choice, ApiError>)| match choice {
        Ok(choice) => result(prompt, choice, began),
        Err(error) => failed(prompt, &error.message),
    };
    let seconds = began.elapsed().as_secs_f64();
    json!({
        "results": prompts.iter().zip(results).map(one).collect::<Vec<_>>(),
        "total_prompts": prompts.len(),
        "total_time_seconds": seconds,
        "avg_time_per_prompt": seconds / prompts.len().max(1) as f64,
    })
}

fn failed(prompt: &str, message: &str) -> Value {
    json!({ "prompt": prompt, "error": message })
}

/// Tokens as they come, and each result when it is complete, all with their prompt's index.
fn lines(
    prompts: Vec<String>,
    streams: Vec<Result<ObservedStream, ApiError>>,
    began: Instant,
) -> impl futures_util::Stream<Item = Value> + Send + 'static {
    let each =
        prompts.into_iter().zip(streams).enumerate().map(move |(index, (prompt, events))| match events {
            Ok(events) => one(index, prompt, events, began).boxed(),
            Err(error) => {
                stream::once(future::ready(numbered(index, failed(&prompt, &error.message)))).boxed()
            }
        });
    stream::select_all(each)
}

fn one(
    index: usize,
    prompt: String,
    events: ObservedStream,
    began: Instant,
) -> impl futures_util::Stream<Item = Value> + Send + 'static {
    let mut collector = Collector::default();
    events.filter_map(move |event| {
        let text = match &event {
            GenerationEvent::Output { deltas, .. } => Some(text_of(deltas.clone())),
            _ => None,
        };
        let is_over = matches!(event, GenerationEvent::Finished { .. });
        let line = match (collector.push(event), text) {
            (Err(error), _) => Some(failed(&prompt, &error.message)),
            (Ok(()), Some(text)) => Some(json!({ "token": text })),
            (Ok(()), None) if is_over => {
                let choice = std::mem::take(&mut collector).finish().only();
                choice.ok().map(|choice| json!({ "result": result(&prompt, &choice, began) }))
            }
            (Ok(()), None) => None,
        };
        future::ready(line.map(|line| numbered(index, line)))
    })
}

fn numbered(index: usize, mut line: Value) -> Value {
    line["index"] = index.into();
    line
}
