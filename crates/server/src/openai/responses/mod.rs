//! `POST /v1/responses`: the newer way to ask for an answer, without a memory on this side.
//!
//! ```text
//! request   input items  -> messages as templates know them
//! render    a whole answer -> output items
//! stream    pieces -> numbered events around output items
//! ```
//! Nothing is stored: `previous_response_id` and `conversation` are errors that say to send the whole conversation.

mod input;
mod render;
mod request;
mod stream;

use axum::Json;
use axum::response::{IntoResponse, Response};

use super::OpenAiError;
use crate::ask::{Ask, Opened};
use crate::identity::Identity;
use render::Render;
pub use request::ResponsesRequest;

pub async fn create(ask: Ask) -> Result<Response, OpenAiError> {
    let Opened::<ResponsesRequest> { request, model, caller } = ask.open().await?;
    let conversation = request.conversation()?;
    let mut job = conversation.job(&model, caller).await?;
    request.apply(&mut job)?;
    let answer = conversation.answer(&model, job)?;
    let identity = Identity::new("resp_", &model.name);
    let streams = request.streams();
    let render = Render::new(identity, model, request);
    if streams {
        return Ok(stream::respond(render, answer));
    }
    let wholes = answer.whole().await?;
    Ok(Json(render.whole(&wholes[0])).into_response())
}
