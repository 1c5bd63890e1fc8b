//! `POST /generate`.

use std::time::Instant;

use axum::Json;
use axum::response::{IntoResponse, Response};
use ropeway_generation::{Prompt, collect};
use serde::Deserialize;
use utoipa::ToSchema;

use super::request::{Parameters, result};
use super::stream;
use crate::ask::{Ask, Opened, Wire};
use crate::generation::generate;
use crate::intake::shape::{Field, Holds};
use crate::openai::OpenAiError;

#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct GenerateRequest {
    pub prompt: String,
    #[serde(flatten)]
    pub parameters: Parameters,
}

impl Wire for GenerateRequest {
    const FIELDS: &'static [Field] = &[Field::new("prompt", Holds::Prompt)];

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
    let Opened::<GenerateRequest> { request, model, caller } = ask.open().await?;
    let began = Instant::now();
    let job = request.parameters.job(Prompt::Text(request.prompt.clone()))?;
    let events = generate(&model, job, caller).await?;
    if request.parameters.stream {
        return Ok(stream::respond(events));
    }
    let choice = collect(events).await?.only()?;
    Ok(Json(result(&request.prompt, &choice, began)).into_response())
}
