//! `POST /generate`.

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::request::{Parameters, result};
use super::stream;
use crate::app::Shared;
use crate::caller::caller;
use crate::error::{ApiError, Kind};
use crate::extract::{self, Body};
use crate::openai::OpenAiError;

#[derive(Clone, Debug, Deserialize)]
pub struct GenerateRequest {
    pub prompt: String,
    #[serde(flatten)]
    pub parameters: Parameters,
}

pub async fn create(
    State(app): State<Shared>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, OpenAiError> {
    let request: GenerateRequest = extract::json(body)?;
    if request.parameters.stream {
        return stream::respond(&app, &headers, &request);
    }
    let began = Instant::now();
    let model = request.parameters.model(&app)?;
    let answer = request.parameters.answer(&model, &request.prompt, caller(&headers, None, None)?)?;
    let whole = answer.whole().await?.0.pop();
    let whole = whole.ok_or_else(|| ApiError::new(Kind::Internal, "the engine gave no answer"))?;
    Ok(Json(result(&request.prompt, &whole, began)).into_response())
}
