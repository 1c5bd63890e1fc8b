//! `POST /v1/completions`: continue a text.

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::future;
use ropeway_generation::{Identity, collect};
use ropeway_openai::completions::{CompletionRender, MOST_PROMPTS, PromptEcho};
use ropeway_openai::{CompletionRequest, Defaults};

use super::{OpenAiError, sse};
use crate::ask::{Ask, Opened, Wire};
use crate::generation::{prepare_all, submit};
use crate::intake::shape::{Field, Holds};

impl Wire for CompletionRequest {
    const FIELDS: &'static [Field] =
        &[Field::new("prompt", Holds::Prompts(MOST_PROMPTS)), Field::new("prediction", Holds::Prediction)];

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
    let Opened::<CompletionRequest> { request, model, caller } = ask.open().await?;
    let (delivery, shape) = (request.fields.delivery(), request.shape());
    let jobs = request.into_jobs(&model.defaults(Defaults::completions()))?;
    let tokenizer = model.generator.tokenizer().cloned();
    let echoes: Vec<_> = jobs.iter().map(|job| shape.echo(&job.prompt, tokenizer.as_ref())).collect();
    let (mut prompts, mut streams) = (Vec::new(), Vec::new());
    for (text, prepared) in echoes.into_iter().zip(prepare_all(&model, jobs, &caller).await?) {
        let prepared = prepared?;
        prompts.push(PromptEcho::new(text, &prepared.request.prompt, &shape));
        streams.push(submit(&model, prepared, caller.clone())?);
    }
    let identity = Identity::new("cmpl-", &model.name);
    let render = CompletionRender { identity, tokenizer, shape, prompts };
    if delivery.stream {
        return Ok(sse::respond(render.stream(streams)));
    }
    let generated = future::try_join_all(streams.into_iter().map(collect)).await?;
    Ok(Json(render.whole(&generated)).into_response())
}
