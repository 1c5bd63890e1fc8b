//! `POST /generate/batch`: many prompts, results in their order; one bad prompt is one error.

use std::time::Instant;

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, future, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::request::{Parameters, result};
use crate::ask::{Ask, Opened, Wire};
use crate::error::ApiError;
use crate::generation::{Answer, Piece, Stopped, TokenReport, Whole, text_prompts};
use crate::ndjson;
use crate::openai::OpenAiError;

/// Prompts of one request; as many as may wait in the engine's queue.
const MOST_PROMPTS: usize = 1024;

#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct BatchRequest {
    prompts: Vec<String>,
    #[serde(flatten)]
    parameters: Parameters,
}

impl Wire for BatchRequest {
    fn model(&self) -> Option<&str> {
        self.parameters.model()
    }
}

pub async fn create(ask: Ask) -> Result<Response, OpenAiError> {
    let Opened::<BatchRequest> { request, model, caller } = ask.open().await?;
    if request.prompts.len() > MOST_PROMPTS {
        let message = format!("at most {MOST_PROMPTS} prompts in one request; send the rest in another");
        return Err(ApiError::invalid(message).about("prompts").into());
    }
    let began = Instant::now();
    let prompts = text_prompts(&model, &request.prompts).await?;
    let begin = |prompt: Result<_, _>| request.parameters.answer(&model, prompt?, caller.clone());
    let answers: Vec<_> = prompts.into_iter().map(begin).collect();
    if request.parameters.stream {
        return Ok(ndjson::respond(lines(request.prompts, answers, began)));
    }
    let results = future::join_all(answers.into_iter().map(finish)).await;
    Ok(Json(summary(&request.prompts, &results, began)).into_response())
}

async fn finish(answer: Result<Answer, ApiError>) -> Result<Whole, ApiError> {
    let whole = answer?.whole().await?.0.pop();
    whole.ok_or_else(|| ApiError::invalid("the engine gave no answer"))
}

fn summary(prompts: &[String], results: &[Result<Whole, ApiError>], began: Instant) -> Value {
    let one = |(prompt, whole): (&String, &Result<Whole, ApiError>)| match whole {
        Ok(whole) => result(prompt, whole, began),
        Err(error) => failed(prompt, error),
    };
    let seconds = began.elapsed().as_secs_f64();
    json!({
        "results": prompts.iter().zip(results).map(one).collect::<Vec<_>>(),
        "total_prompts": prompts.len(),
        "total_time_seconds": seconds,
        "avg_time_per_prompt": seconds / prompts.len().max(1) as f64,
    })
}

fn failed(prompt: &str, error: &ApiError) -> Value {
    json!({ "prompt": prompt, "error": error.message })
}

/// Tokens as they come, and each result when it is complete, all with their prompt's index.
fn lines(
    prompts: Vec<String>,
    answers: Vec<Result<Answer, ApiError>>,
    began: Instant,
) -> impl futures_util::Stream<Item = Value> + Send + 'static {
    let each =
        prompts.into_iter().zip(answers).enumerate().map(move |(index, (prompt, answer))| match answer {
            Ok(answer) => one(index, prompt, answer, began).boxed(),
            Err(error) => stream::once(future::ready(numbered(index, failed(&prompt, &error)))).boxed(),
        });
    stream::select_all(each)
}

fn one(
    index: usize,
    prompt: String,
    answer: Answer,
    began: Instant,
) -> impl futures_util::Stream<Item = Value> + Send + 'static {
    let (mut text, mut reports): (String, Vec<TokenReport>) = (String::new(), Vec::new());
    answer.filter_map(move |piece| {
        future::ready(match piece {
            Piece::Reading | Piece::Scored(_) => None,
            Piece::Text { text: more, tokens, .. } => {
                text.push_str(&more);
                reports.extend(tokens);
                Some(numbered(index, json!({ "token": more })))
            }
            Piece::Done { stopped: Stopped::Failed(error), .. } => {
                Some(numbered(index, failed(&prompt, &error)))
            }
            Piece::Done { stopped, usage, .. } => {
                let (text, tokens) = (std::mem::take(&mut text), std::mem::take(&mut reports));
                let whole = Whole { text, tokens, stopped, usage };
                Some(numbered(index, json!({ "result": result(&prompt, &whole, began) })))
            }
        })
    })
}

fn numbered(index: usize, mut line: Value) -> Value {
    line["index"] = index.into();
    line
}
