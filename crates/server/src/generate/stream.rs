//! `POST /generate/stream`: one event per piece of text.

use std::time::Instant;

use axum::response::Response;
use futures_util::{StreamExt, stream};
use serde_json::json;

use super::one::GenerateRequest;
use crate::ask::{Ask, Opened};
use crate::generation::{Answer, Piece, Stopped, text_prompt};
use crate::openai::{OpenAiError, sse};

pub async fn create(ask: Ask) -> Result<Response, OpenAiError> {
    let Opened::<GenerateRequest> { request, model, caller } = ask.open().await?;
    let prompt = text_prompt(&model, &request.prompt).await?;
    Ok(respond(request.parameters.answer(&model, prompt, caller)?))
}

/// Streams a text as it is generated.
pub fn respond(answer: Answer) -> Response {
    let (began, mut index) = (Instant::now(), 0);
    let events = answer.flat_map(move |piece| {
        let mut event = |token: &str, id: Option<u32>, is_final: bool| {
            let event = json!({
                "token": token, "token_id": id, "index": index, "is_final": is_final,
                "acceptance_rate": null, "time_elapsed": began.elapsed().as_secs_f64(),
            });
            index += 1;
            event
        };
        stream::iter(match piece {
            Piece::Reading | Piece::Scored(_) => Vec::new(),
            Piece::Text { text, tokens, .. } => {
                vec![event(&text, tokens.last().map(|report| report.sampled.token), false)]
            }
            Piece::Done { stopped: Stopped::Failed(error), .. } => vec![OpenAiError(error).body()],
            Piece::Done { .. } => vec![event("", None, true)],
        })
    });
    sse::respond(events)
}
