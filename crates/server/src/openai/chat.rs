//! `POST /v1/chat/completions`: answer a conversation.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use ropeway_engine::Usage;
use ropeway_text::Delta;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::completions::finish_reason;
use super::sampling::Fields;
use super::{OpenAiError, logprobs, messages, sse, usage};
use crate::ask::{Ask, Opened, Wire};
use crate::error::ApiError;
use crate::generation::chat::{ChatAnswer, ChatPiece, ChatWhole, Conversation, ToolChoice};
use crate::generation::structure::{Extensions, Structure};
use crate::generation::{Stopped, TokenReport};
use crate::identity::{Identity, unique};
use crate::model::Model;

/// What clients send.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ChatCompletionRequest {
    model: Option<String>,
    messages: Vec<Value>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    logprobs: Option<bool>,
    top_logprobs: Option<u32>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    response_format: Option<Value>,
    #[serde(flatten)]
    extensions: Extensions,
    chat_template_kwargs: Option<Map<String, Value>>,
    #[serde(flatten)]
    fields: Fields,
}

impl Wire for ChatCompletionRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn user(&self) -> Option<&str> {
        self.fields.name()
    }

    fn priority(&self) -> Option<&str> {
        self.fields.class()
    }
}

pub async fn create(ask: Ask) -> Result<Response, OpenAiError> {
    let Opened::<ChatCompletionRequest> { request, model, caller } = ask.open().await?;
    let conversation = request.conversation()?;
    let mut job = conversation.job(&model, caller).await?;
    request.fields.clone().apply(&mut job)?;
    job.max_tokens = request.max_completion_tokens.or(request.max_tokens);
    job.params.logprobs = request.logprobs()?;
    let answer = conversation.answer(&model, job)?;
    let identity = Identity::new("chatcmpl-", &model.name);
    let wants_logprobs = request.logprobs == Some(true);
    let render = Render { identity, model, wants_logprobs };
    if request.fields.streams() {
        let includes_usage = request.fields.includes_usage();
        return Ok(sse::respond(render.stream(answer, request.fields.n.unwrap_or(1), includes_usage)));
    }
    Ok(Json(render.whole(&answer.whole().await?)).into_response())
}

impl ChatCompletionRequest {
    fn conversation(&self) -> Result<Conversation, ApiError> {
        Ok(Conversation {
            messages: messages::messages(self.messages.clone())?,
            tools: self.tools.clone().unwrap_or_default(),
            choice: tool_choice(self.tool_choice.as_ref())?,
            variables: self.chat_template_kwargs.clone().unwrap_or_default(),
            reasoning: true,
            structure: Structure::openai_or_vllm(self.response_format.as_ref(), &self.extensions)?,
        })
    }

    fn logprobs(&self) -> Result<Option<u32>, ApiError> {
        match (self.logprobs, self.top_logprobs) {
            (Some(true), top) => Ok(Some(top.unwrap_or(0))),
            (_, Some(_)) => {
                Err(ApiError::invalid("top_logprobs needs logprobs to be true").about("top_logprobs"))
            }
            _ => Ok(None),
        }
    }
}

fn tool_choice(choice: Option<&Value>) -> Result<ToolChoice, ApiError> {
    match choice {
        None | Some(Value::Null) => Ok(ToolChoice::Auto),
        Some(Value::String(word)) if word == "auto" => Ok(ToolChoice::Auto),
        Some(Value::String(word)) if word == "none" => Ok(ToolChoice::None),
        Some(Value::String(word)) if word == "required" => Ok(ToolChoice::Required),
        Some(named) => {
            match named["function"]["name"].as_str() {
                Some(name) => Ok(ToolChoice::Named(name.into())),
                None => Err(ApiError::invalid("tool_choice is none, auto, required or a function")
                    .about("tool_choice")),
            }
        }
    }
}

/// Everything that renders answers.
struct Render {
    identity: Identity,
    model: Arc<Model>,
    wants_logprobs: bool,
}

/// What the answers of a stream used so far.
#[derive(Default)]
struct Spent {
    usages: Vec<Usage>,
    reasoning: usize,
}

impl Render {
    fn whole(&self, wholes: &[ChatWhole]) -> Value {
        let choices: Vec<_> = wholes.iter().enumerate().map(|(i, whole)| self.choice(i, whole)).collect();
        let mut response = self.identity.object("chat.completion");
        response["choices"] = choices.into();
        let reasoning = wholes.iter().map(|whole| whole.reasoning_tokens).sum();
        response["usage"] = usage::chat(wholes.iter().map(|whole| &whole.usage), reasoning);
        response
    }

    fn choice(&self, index: usize, whole: &ChatWhole) -> Value {
        let called = !whole.calls.is_empty();
        let text = (!called || !whole.text.is_empty()).then_some(&whole.text);
        let mut message = json!({ "role": "assistant", "content": text, "refusal": null });
        if !whole.reasoning.is_empty() {
            message["reasoning_content"] = whole.reasoning.as_str().into();
        }
        if called {
            let call = |call: &crate::generation::chat::ToolCall| {
                let function = json!({ "name": call.name, "arguments": call.arguments });
                json!({ "id": unique("call_"), "type": "function", "function": function })
            };
            message["tool_calls"] = whole.calls.iter().map(call).collect();
        }
        json!({
            "index": index,
            "message": message,
            "logprobs": self.logprobs(&whole.tokens),
            "finish_reason": reason(&whole.stopped, called),
        })
    }

    fn logprobs(&self, tokens: &[TokenReport]) -> Option<Value> {
        self.wants_logprobs.then(|| logprobs::chat(&self.model.tokenizer, tokens))
    }

    fn stream(
        self,
        answer: ChatAnswer,
        n: usize,
        includes_usage: bool,
    ) -> impl Stream<Item = Value> + Send + 'static {
        let hello: Vec<_> =
            (0..n).map(|i| self.chunk(i, &json!({ "role": "assistant", "content": "" }))).collect();
        let mut spent = Spent::default();
        let end = stream::once(async { None });
        let pieces = answer.map(Some).chain(end).flat_map(move |piece| {
            stream::iter(match piece {
                Some(piece) => self.piece(piece, &mut spent),
                None if includes_usage => vec![self.usage_chunk(&spent)],
                None => Vec::new(),
            })
        });
        stream::iter(hello).chain(pieces)
    }

    fn piece(&self, piece: ChatPiece, spent: &mut Spent) -> Vec<Value> {
        match piece {
            ChatPiece::Reading => Vec::new(),
            ChatPiece::Deltas { index, deltas, tokens } => self.deltas(index, deltas, &tokens),
            ChatPiece::Done { stopped: Stopped::Failed(error), .. } => vec![OpenAiError(error).body()],
            ChatPiece::Done { index, stopped, called, reasoning, usage } => {
                spent.usages.push(usage);
                spent.reasoning += reasoning;
                let mut last = self.chunk(index, &json!({}));
                last["choices"][0]["finish_reason"] = reason(&stopped, called).into();
                vec![last]
            }
        }
    }

    fn deltas(&self, index: usize, deltas: Vec<Delta>, tokens: &[TokenReport]) -> Vec<Value> {
        let mut chunks: Vec<_> = deltas.into_iter().map(|delta| self.chunk(index, &wire(delta))).collect();
        if self.wants_logprobs && !tokens.is_empty() {
            if chunks.is_empty() {
                chunks.push(self.chunk(index, &json!({})));
            }
            chunks[0]["choices"][0]["logprobs"] = logprobs::chat(&self.model.tokenizer, tokens);
        }
        chunks
    }

    fn chunk(&self, index: usize, delta: &Value) -> Value {
        let mut chunk = self.identity.object("chat.completion.chunk");
        chunk["choices"] =
            json!([{ "index": index, "delta": delta, "logprobs": null, "finish_reason": null }]);
        chunk
    }

    fn usage_chunk(&self, spent: &Spent) -> Value {
        let mut chunk = self.identity.object("chat.completion.chunk");
        (chunk["choices"], chunk["usage"]) = (json!([]), usage::chat(&spent.usages, spent.reasoning));
        chunk
    }
}

fn wire(delta: Delta) -> Value {
    match delta {
        Delta::Text(text) => json!({ "content": text }),
        Delta::Reasoning(text) => json!({ "reasoning_content": text }),
        Delta::ToolCall { index, name } => json!({ "tool_calls": [{
            "index": index, "id": unique("call_"), "type": "function",
            "function": { "name": name, "arguments": "" },
        }] }),
        Delta::Arguments { index, json } => {
            json!({ "tool_calls": [{ "index": index, "function": { "arguments": json } }] })
        }
    }
}

fn reason(stopped: &Stopped, called: bool) -> &'static str {
    if called && *stopped == Stopped::End { "tool_calls" } else { finish_reason(stopped) }
}
