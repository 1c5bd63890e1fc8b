//! `POST /tokenize` and `POST /detokenize`, as vLLM has them: a text or a conversation to ids, and back.

use axum::Json;
use ropeway_generation::{Conversation, Prompt, RequestError};
use ropeway_openai::messages;
use ropeway_openai::token_ids::TokenList;
use ropeway_text::{Around, InText, Special, SpecialTokens, Tokenizer};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::OpenAiError;
use crate::ask::{Ask, Opened, Wire};
use crate::error::ApiError;
use crate::generation::encode;
use crate::intake::shape::{Field, Holds};
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

/// The tokens of a text, written without a tree of them.
#[derive(Serialize)]
pub struct Tokenized {
    count: usize,
    max_model_len: usize,
    tokens: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_strs: Option<TokenTexts>,
}

/// The text of each token, made as it is written.
struct TokenTexts {
    tokenizer: Tokenizer,
    tokens: Vec<u32>,
}

impl Serialize for TokenTexts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = |id: &u32| self.tokenizer.decode(&[*id], SpecialTokens::Keep);
        serializer.collect_seq(self.tokens.iter().map(text))
    }
}

pub async fn tokenize(ask: Ask) -> Result<Json<Tokenized>, OpenAiError> {
    let Opened::<TokenizeRequest> { request, model, caller } = ask.open().await?;
    let tokens = match (request.messages, request.prompt.or(request.content)) {
        (Some(given), _) => {
            let (messages, tools) = (messages::messages(given)?, request.tools.unwrap_or_default());
            let conversation = Conversation { messages, tools, ..Conversation::default() };
            encode(&model, Prompt::Conversation(conversation), &caller.intake).await?
        }
        (None, Some(text)) => {
            let around = if request.add_special_tokens.unwrap_or(true) { Around::Add } else { Around::Omit };
            let model = model.clone();
            // Longer than the context, too: whether a text fits is what is being asked.
            offload(&caller.intake, Effort::Bytes(text.len()), move |interrupt| {
                let special = Special { in_text: InText::Parse, around };
                let tokenizer = model.generator.tokenizer.interrupted_by(interrupt);
                Ok::<_, RequestError>(tokenizer.encode(&text, special)?)
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
    let texts = || TokenTexts { tokenizer: model.generator.tokenizer.clone(), tokens: tokens.clone() };
    let token_strs = (request.return_token_strs == Some(true)).then(texts);
    Ok(Json(Tokenized { count: tokens.len(), max_model_len: model.context(), tokens, token_strs }))
}

/// Bytes of a token where the tokenizer does not say.
const LONGEST_TOKEN: usize = 128;

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

pub async fn detokenize(ask: Ask) -> Result<Json<Value>, OpenAiError> {
    let Opened::<DetokenizeRequest> { request, model, caller } = ask.open().await?;
    let tokens = request.tokens.read("tokens")?;
    caller.spend(tokens.len());
    let vocab = model.generator.tokenizer.vocab_size();
    if let Some(unknown) = tokens.iter().find(|&&id| id as usize >= vocab) {
        let most = vocab - 1;
        let error = ApiError::invalid(format!("{unknown} is no token of this model; they go up to {most}"));
        return Err(error.about("tokens").into());
    }
    // The text, once growing and once written as JSON.
    let longest = model.generator.max_prompt_bytes() / model.context().max(1);
    caller.intake.cover(tokens.len().saturating_mul(longest.min(LONGEST_TOKEN)).saturating_mul(3))?;
    let effort = Effort::Bytes(tokens.len());
    let decode =
        move |_: &_| Ok::<_, ApiError>(model.generator.tokenizer.decode(&tokens, SpecialTokens::Keep));
    let text = offload(&caller.intake, effort, decode).await?;
    Ok(Json(json!({ "prompt": text })))
}
