//! `POST /tokenize` and `POST /detokenize`, as vLLM has them: a text or a conversation to ids, and back.

use axum::Json;
use ropeway_generation::{Conversation, Prompt, RequestError};
use ropeway_openai::{messages, token_ids};
use ropeway_text::{Around, InText, Special, SpecialTokens};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::OpenAiError;
use crate::ask::{Ask, Opened, Wire};
use crate::error::ApiError;
use crate::generation::encode;
use crate::offload::offload;

/// What clients send to have tokens: a prompt or messages.
#[derive(Debug, Deserialize, ToSchema)]
pub struct TokenizeRequest {
    model: Option<String>,
    prompt: Option<String>,
    /// llama.cpp's name for `prompt`.
    content: Option<String>,
    messages: Option<Vec<Value>>,
    tools: Option<Vec<Value>>,
    /// Whether the tokens that stand around every text are added.
    add_special_tokens: Option<bool>,
    return_token_strs: Option<bool>,
}

impl Wire for TokenizeRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

pub async fn tokenize(ask: Ask) -> Result<Json<Value>, OpenAiError> {
    let Opened::<TokenizeRequest> { request, model, caller } = ask.open().await?;
    let tokens = match (request.messages, request.prompt.or(request.content)) {
        (Some(given), _) => {
            let (messages, tools) = (messages::messages(given)?, request.tools.unwrap_or_default());
            let conversation = Conversation { messages, tools, ..Conversation::default() };
            encode(&model, Prompt::Conversation(conversation)).await?
        }
        (None, Some(text)) => {
            let around = if request.add_special_tokens.unwrap_or(true) { Around::Add } else { Around::Omit };
            let model = model.clone();
            // However long: whether a text fits is what is being asked.
            offload(text.len(), move || {
                let special = Special { in_text: InText::Parse, around };
                Ok::<_, RequestError>(model.generator.tokenizer.encode(&text, special)?)
            })
            .await?
        }
        (None, None) => {
            return Err(ApiError::invalid("send the text as \"prompt\", or a conversation as \"messages\"")
                .about("prompt")
                .into());
        }
    };
    caller.spend(tokens.len());
    let mut answer = json!({ "count": tokens.len(), "max_model_len": model.context(), "tokens": tokens });
    if request.return_token_strs == Some(true) {
        let text = |id: &u32| model.generator.tokenizer.decode(&[*id], SpecialTokens::Keep);
        answer["token_strs"] = tokens.iter().map(text).collect();
    }
    Ok(Json(answer))
}

/// What clients send to have text.
#[derive(Debug, Deserialize, ToSchema)]
pub struct DetokenizeRequest {
    model: Option<String>,
    tokens: Vec<Value>,
}

impl Wire for DetokenizeRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

pub async fn detokenize(ask: Ask) -> Result<Json<Value>, OpenAiError> {
    let Opened::<DetokenizeRequest> { request, model, caller } = ask.open().await?;
    let tokens = token_ids::read(&request.tokens, "tokens")?;
    caller.spend(tokens.len());
    let vocab = model.generator.tokenizer.vocab_size();
    if let Some(unknown) = tokens.iter().find(|&&id| id as usize >= vocab) {
        let most = vocab - 1;
        let error = ApiError::invalid(format!("{unknown} is no token of this model; they go up to {most}"));
        return Err(error.about("tokens").into());
    }
    let decode = move || Ok::<_, ApiError>(model.generator.tokenizer.decode(&tokens, SpecialTokens::Keep));
    let text = offload(request.tokens.len(), decode).await?;
    Ok(Json(json!({ "prompt": text })))
}
