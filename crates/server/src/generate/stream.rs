//! `POST /generate/stream`: one event per piece of text.

use std::time::Instant;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use serde_json::json;

use super::one::GenerateRequest;
use crate::app::{App, Shared};
use crate::caller::caller;
use crate::extract::{self, Body};
use crate::generation::{Piece, Stopped};
use crate::openai::{OpenAiError, sse};

pub async fn create(
    State(app): State<Shared>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, OpenAiError> {
    respond(&app, &headers, &extract::json(body)?)
}

/// Streams a text as it is generated.
pub fn respond(app: &App, headers: &HeaderMap, request: &GenerateRequest) -> Result<Response, OpenAiError> {
    let model = request.parameters.model(app)?;
    let answer = request.parameters.answer(&model, &request.prompt, caller(headers, None, None)?)?;
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
    Ok(sse::respond(events))
}
