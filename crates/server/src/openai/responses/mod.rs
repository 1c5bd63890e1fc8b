//! `/v1/responses`: answers that clients can come back to.
//!
//! ```text
//! request, echo   what is asked, and what a response repeats of it
//! turn, memory    what it goes on from; input items -> messages (input), tools as the model sees them (tools)
//! writer, render  what is generated -> numbered events around output items
//! deliver         whole, streamed, or in the background
//! manage, page    look at a response, its input, stop it, delete it
//! ```
//! What is stored, and how much of it, is the [`store`](super::store)'s.

mod deliver;
mod echo;
mod input;
pub mod items;
pub mod manage;
pub mod memory;
pub mod page;
mod render;
mod request;
mod tools;
mod turn;
mod writer;

use axum::response::Response;
use ropeway_executor::SamplingParams;
use ropeway_generation::Identity;

use super::OpenAiError;
use crate::app::Shared;
use crate::ask::{Ask, Opened};
use crate::error::ApiError;
use crate::generation::generate;
use deliver::Delivering;
pub use echo::metadata;
use memory::Memory;
use render::Render;
pub use request::ResponsesRequest;
use turn::Turn;
use writer::Writer;

pub async fn create(ask: Ask) -> Result<Response, OpenAiError> {
    let memory = Memory { app: Shared::clone(ask.app()), tenant: ask.client().tenant() };
    let Opened::<ResponsesRequest> { mut request, model, caller } = ask.open().await?;
    request.defaults = model.sampling(SamplingParams::default());
    let included = request.included();
    let Turn { job, delivery, tools, echo, keeping } = Turn::read(memory, request, &caller.intake).await?;
    let events = generate(&model, job, caller).await.map_err(about_input)?;
    let identity = Identity::new("resp_", &model.name);
    let tokenizer = model.generator.tokenizer().cloned();
    let is_background = delivery.is_background;
    let render = Render { identity, tokenizer, is_background, included, tools, echo };
    let delivering = Delivering { writer: Writer::new(render), events, keeping };
    Ok(delivering.answer(delivery).await?)
}

/// What is wrong with messages is wrong with the input here.
fn about_input(mut error: ApiError) -> ApiError {
    if error.param.as_deref() == Some("messages") {
        error.param = Some("input".into());
    }
    error
}
