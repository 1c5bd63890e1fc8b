//! `POST /v1/messages` and `/v1/messages/count_tokens`.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{AnthropicError, render, stream, translate};
use crate::ask::{Ask, Opened, Wire};
use crate::error::ApiError;
use crate::generation::chat::Conversation;
use crate::generation::sampling::any_seed;
use crate::generation::structure::Structure;
use crate::generation::{Caller, Job};
use crate::identity::Identity;
use crate::model::Model;

/// What clients send.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct MessagesRequest {
    model: String,
    messages: Vec<Value>,
    max_tokens: Option<usize>,
    system: Option<Value>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    stop_sequences: Option<Vec<String>>,
    stream: Option<bool>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    thinking: Option<Value>,
    metadata: Option<Value>,
    output_config: Option<Value>,
    output_format: Option<Value>,
}

impl Wire for MessagesRequest {
    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }

    fn user(&self) -> Option<&str> {
        self.metadata.as_ref()?["user_id"].as_str()
    }
}

pub async fn create(ask: Ask) -> Result<Response, AnthropicError> {
    let Opened::<MessagesRequest> { request, model, caller } = ask.open().await?;
    let conversation = request.conversation()?;
    let job = request.job(&conversation, &model, caller).await?;
    let answer = conversation.answer(&model, job)?;
    let identity = Identity::new("msg_", &model.name);
    if request.stream == Some(true) {
        return Ok(stream::respond(&identity, answer));
    }
    let whole = answer.whole().await?.pop();
    Ok(Json(render::message(&identity, whole)).into_response())
}

pub async fn count_tokens(ask: Ask) -> Result<Json<Value>, AnthropicError> {
    let (request, model) = ask.read::<MessagesRequest>().await?;
    let prompt = request.conversation()?.prompt(&model).await?;
    Ok(Json(json!({ "input_tokens": prompt.len() })))
}

impl MessagesRequest {
    fn conversation(&self) -> Result<Conversation, ApiError> {
        let format = self.output_config.as_ref().and_then(|config| config.get("format"));
        Ok(Conversation {
            messages: translate::messages(self.system.as_ref(), &self.messages)?,
            tools: translate::tools(self.tools.as_deref().unwrap_or_default()),
            choice: translate::tool_choice(self.tool_choice.as_ref())?,
            variables: self.variables(),
            reasoning: true,
            structure: Structure::anthropic(format.or(self.output_format.as_ref()))?,
        })
    }

    /// Models whose thinking can be switched listen to `enable_thinking`.
    fn variables(&self) -> serde_json::Map<String, Value> {
        let kind = self.thinking.as_ref().and_then(|thinking| thinking["type"].as_str());
        let switch = kind.map(|kind| ("enable_thinking".to_owned(), Value::from(kind != "disabled")));
        switch.into_iter().collect()
    }

    async fn job(
        &self,
        conversation: &Conversation,
        model: &Arc<Model>,
        caller: Caller,
    ) -> Result<Job, ApiError> {
        let Some(max_tokens) = self.max_tokens else {
            return Err(ApiError::invalid("how many tokens may the answer have?").about("max_tokens"));
        };
        let mut job = conversation.job(model, caller).await?;
        job.max_tokens = Some(max_tokens);
        job.stops = self.stop_sequences.clone().unwrap_or_default();
        job.params.temperature = self.temperature.unwrap_or(1.0);
        job.params.top_p = self.top_p.unwrap_or(1.0);
        job.params.top_k = self.top_k.unwrap_or(0);
        job.params.seed = any_seed();
        Ok(job)
    }
}
