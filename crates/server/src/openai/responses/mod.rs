//! `POST /v1/responses`: the newer way to ask for an answer, without a memory on this side.
//!
//! ```text
//! request   input items  -> messages as templates know them
//! render    a whole answer -> output items
//! stream    what is generated -> numbered events around output items
//! ```
//! Nothing is stored: `previous_response_id` and `conversation` are errors that say to send the whole conversation.

mod input;
mod render;
mod request;
mod stream;

use axum::Json;
use axum::response::{IntoResponse, Response};
use ropeway_generation::{Identity, collect};

use super::OpenAiError;
use crate::ask::{Ask, Opened};
use crate::generation::generate;
use render::Render;
pub use request::ResponsesRequest;

pub async fn create(ask: Ask) -> Result<Response, OpenAiError> {
    let Opened::<ResponsesRequest> { request, model, caller } = ask.open().await?;
    let (streams, wants_logprobs, echo) = (request.streams(), request.wants_logprobs(), request.echo());
    let events = generate(&model, request.into_job()?, caller).await?;
    let identity = Identity::new("resp_", &model.name);
    let tokenizer = model.generator.tokenizer.clone();
    let render = Render { identity, tokenizer, wants_logprobs, echo };
    if streams {
        return Ok(stream::respond(render, events));
    }
    let choice = collect(events).await?.only()?;
    Ok(Json(render.whole(&choice)).into_response())
}
