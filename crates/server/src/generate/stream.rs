//! `POST /generate/stream`: one event per piece of text. The last one tells how many drafted tokens were right.

use std::time::Instant;

use axum::response::Response;
use futures_util::{Stream, StreamExt, stream};
use ropeway_generation::{Finish, GenerationEvent, Prompt, StopReason, text_of};
use serde_json::json;

use super::one::GenerateRequest;
use super::request::share;
use crate::ask::{Ask, Opened};
use crate::generation::generate;
use crate::openai::{OpenAiError, sse};

pub async fn create(ask: Ask) -> Result<Response, OpenAiError> {
    let Opened::<GenerateRequest> { request, model, caller } = ask.open().await?;
    let job = request.parameters.job(Prompt::Text(request.prompt))?;
    Ok(respond(generate(&model, job, caller).await?))
}

/// Streams a text as it is generated.
pub fn respond(events: impl Stream<Item = GenerationEvent> + Send + 'static) -> Response {
    let (began, mut index) = (Instant::now(), 0);
    let events = events.flat_map(move |generated| {
        let mut event = |token: &str, id: Option<u32>, finish: Option<&Finish>| {
            let drafting = finish.map(|finish| finish.usage.drafting);
            let event = json!({
                "token": token, "token_id": id, "index": index, "is_final": finish.is_some(),
                "acceptance_rate": drafting.map(|totals| share(totals.accepted, totals.drafted)),
                "time_elapsed": began.elapsed().as_secs_f64(),
            });
            index += 1;
            event
        };
        stream::iter(match generated {
            GenerationEvent::Placed { .. }
            | GenerationEvent::PromptProgress { .. }
            | GenerationEvent::PromptLogprob(_) => Vec::new(),
            GenerationEvent::Output { deltas, tokens, .. } => {
                vec![event(&text_of(deltas), tokens.last().map(|sampled| sampled.token), None)]
            }
            GenerationEvent::Finished {
                finish: Finish { reason: StopReason::Failed(error), .. }, ..
            } => {
                vec![OpenAiError::from(error).body()]
            }
            GenerationEvent::Finished { finish, .. } => vec![event("", None, Some(&finish))],
        })
    });
    sse::respond(events)
}
