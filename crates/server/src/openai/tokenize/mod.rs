//! `POST /tokenize` and `POST /detokenize`, as vLLM has them: a text or a conversation to ids, and back.

mod answer;

use std::iter;
use std::sync::Arc;

use axum::response::Response;
use ropeway_generation::{Conversation, Prompt, RequestError};
use ropeway_openai::messages;
use ropeway_openai::token_ids::TokenList;
use ropeway_text::{Around, InText, PackedTokens, Special, Tokenizer};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::OpenAiError;
use crate::ask::{Ask, Opened, Wire};
use crate::error::ApiError;
use crate::generation::encode;
use crate::intake::shape::{Field, Holds};
use crate::model::Model;
use crate::offload::{Effort, offload};

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
    const FIELDS: &'static [Field] = &[
        Field::new("prompt", Holds::Counted),
        Field::new("content", Holds::Counted),
        Field::new("messages", Holds::Conversation),
        Field::new("tools", Holds::Conversation),
    ];

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

pub async fn tokenize(ask: Ask) -> Result<Response, OpenAiError> {
    let Opened::<TokenizeRequest> { request, model, caller } = ask.open().await?;
    let tokens = match (request.messages, request.prompt.or(request.content)) {
        (Some(given), _) => {
            let (messages, tools) = (messages::messages(given)?, request.tools.unwrap_or_default());
            let conversation = Conversation { messages, tools, ..Conversation::default() };
            encode(&model, Prompt::Conversation(conversation), &caller.intake).await?.into_iter().collect()
        }
        (None, Some(text)) => {
            let around = if request.add_special_tokens.unwrap_or(true) { Around::Add } else { Around::Omit };
            let tokenizer = model.generator.token_model()?.tokenizer.clone();
            // Longer than the context, too: whether a text fits is what is being asked.
            offload(&caller.intake, Effort::Bytes(text.len()), move |interrupt| {
                let special = Special { in_text: InText::Parse, around };
                tokenizer.interrupted_by(interrupt).encode_packed(&text, special).map_err(RequestError::from)
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
    let for_texts = model.generator.tokenizer().filter(|_| request.return_token_strs == Some(true));
    Ok(tokenized(&model, tokens, for_texts))
}

/// With a tokenizer, its texts are there as well:
/// `{"count": 2, "max_model_len": 2048, "tokens": [1, 2], "token_strs": ["a", "b"]}`
fn tokenized(model: &Model, tokens: PackedTokens, tokenizer: Option<&Tokenizer>) -> Response {
    let (count, context, tokens) = (tokens.len(), model.context(), Arc::new(tokens));
    let head = format!(r#"{{"count":{count},"max_model_len":{context},"tokens":["#);
    let pieces = iter::once(head).chain(answer::numbers(&tokens));
    let Some(tokenizer) = tokenizer else {
        return answer::json(pieces.chain(iter::once("]}".into())));
    };
    let texts = answer::texts(&tokens, tokenizer.clone());
    let between = iter::once(r#"],"token_strs":["#.to_owned());
    answer::json(pieces.chain(between).chain(texts).chain(iter::once("]}".into())))
}

/// What clients send to have text.
#[derive(Debug, Deserialize, ToSchema)]
pub struct DetokenizeRequest {
    model: Option<String>,
    #[schema(value_type = Vec<u32>)]
    tokens: TokenList,
}

impl Wire for DetokenizeRequest {
    const FIELDS: &'static [Field] = &[Field::new("tokens", Holds::Tokens)];

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

pub async fn detokenize(ask: Ask) -> Result<Response, OpenAiError> {
    let Opened::<DetokenizeRequest> { request, model, caller } = ask.open().await?;
    let tokenizer = &model.generator.token_model()?.tokenizer;
    let tokens = request.tokens.read("tokens")?;
    caller.spend(tokens.len());
    let vocab = tokenizer.vocab_size();
    if let Some(unknown) = tokens.iter().find(|&&id| id as usize >= vocab) {
        let most = vocab - 1;
        let error = ApiError::invalid(format!("{unknown} is no token of this model; they go up to {most}"));
        return Err(error.about("tokens").into());
    }
    let text = answer::text(tokens, tokenizer);
    Ok(answer::json(iter::once(r#"{"prompt":""#.to_owned()).chain(text).chain(iter::once("\"}".into()))))
}
