//! `POST /v1/chat/completions`: answer a conversation.

use axum::Json;
use axum::response::{IntoResponse, Response};
use ropeway_generation::{Identity, collect};
use ropeway_openai::chat::ChatRender;
use ropeway_openai::{ChatCompletionRequest, Defaults};

use super::{OpenAiError, sse};
use crate::ask::{Ask, Opened, Wire};
use crate::generation::{prepare, submit};
use crate::intake::shape::{Field, Holds};

impl Wire for ChatCompletionRequest {
    const FIELDS: &'static [Field] = &[
        Field::new("messages", Holds::Conversation),
        Field::new("tools", Holds::Conversation),
        Field::new("chat_template_kwargs", Holds::Conversation),
        Field::new("prediction", Holds::Prediction),
    ];

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn user(&self) -> Option<&str> {
        self.fields.user()
    }

    fn session(&self) -> Option<&str> {
        self.fields.session_id()
    }

    fn priority(&self) -> Option<&str> {
        self.fields.class()
    }

    fn cache_salt(&self) -> Option<&str> {
        self.fields.cache_salt()
    }
}

pub async fn create(ask: Ask) -> Result<Response, OpenAiError> {
    let Opened::<ChatCompletionRequest> { request, model, caller } = ask.open().await?;
    let (delivery, wants_logprobs) = (request.fields.delivery(), request.wants_logprobs());
    let tokens = request.fields.token_shape();
    let job = request.into_job(&model.defaults(Defaults::chat()))?;
    let n = job.n.get();
    let prepared = prepare(&model, job, &caller).await?;
    let prompt = if tokens.ids { prepared.request.prompt.clone() } else { Vec::new() };
    let events = submit(&model, prepared, caller)?;
    let identity = Identity::new("chatcmpl-", &model.name);
    let tokenizer = model.generator.tokenizer().cloned();
    let render = ChatRender { identity, tokenizer, wants_logprobs, tokens, prompt };
    if delivery.stream {
        return Ok(sse::respond(render.stream(events, n, delivery.include_usage)));
    }
    Ok(Json(render.whole(&collect(events).await?.choices)).into_response())
}
