//! `POST /generate/stream`: one event per piece of text.

use std::time::Instant;

use axum::response::Response;
use futures_util::{StreamExt, stream};
use ropeway_generation::{Finish, GenerationEvent, StopReason, text_of};
use serde_json::json;

use super::one::GenerateRequest;
use crate::ask::{Ask, Opened};
use crate::generation::{ObservedStream, generate};
use crate::openai::{OpenAiError, sse};

pub async fn create(ask: Ask) -> Result<Response, OpenAiError> {
    let Opened::<GenerateRequest> { request, model, caller } = ask.open().await?;
    let job = request.parameters.job(request.prompt)?;
    Ok(respond(generate(&model, job, caller).await?))
}

/// Streams a text as it is generated.
pub fn respond(events: ObservedStream) -> Response {
    let (began, mut index) = (Instant::now(), 0);
    let events = events.flat_map(move |generated| {
        let mut event = |token: &str, id: Option<u32>, is_final: bool| {
            let event = json!({
                "token": token, "token_id": id, "index": index, "is_final": is_final,
                "acceptance_rate": null, "time_elapsed": began.elapsed().as_secs_f64(),
            });
            index += 1;
            event
        };
        stream::iter(match generated {
            GenerationEvent::PromptProgress { .. } | GenerationEvent::PromptLogprob(_) => Vec::new(),
            GenerationEvent::Output { deltas, tokens, .. } => {
                vec![event(&text_of(deltas), tokens.last().map(|sampled| sampled.token), false)]
            }
            GenerationEvent::Finished {
                finish: Finish { reason: StopReason::Failed(error), .. }, ..
            } => {
                vec![OpenAiError::from(error).body()]
            }
            GenerationEvent::Finished { .. } => vec![event("", None, true)],
        })
    });
    sse::respond(events)
}
