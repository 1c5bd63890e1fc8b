//! From texts and ids to prompts, without holding anybody up.

use std::sync::Arc;

use ropeway_text::Special;
use serde_json::Value;

use crate::error::ApiError;
use crate::model::Model;
use crate::offload::offload;

/// The tokens of a text to continue.
pub async fn text_prompt(model: &Arc<Model>, text: &str) -> Result<Vec<u32>, ApiError> {
    let (model, text) = (Arc::clone(model), text.to_owned());
    offload(text.len(), move || tokens(&model, &text)).await
}

/// The tokens of each text; one that can't be read is an error of its own.
pub async fn text_prompts(
    model: &Arc<Model>,
    texts: &[String],
) -> Result<Vec<Result<Vec<u32>, ApiError>>, ApiError> {
    let (model, texts) = (Arc::clone(model), texts.to_vec());
    let bytes = texts.iter().map(String::len).sum();
    offload(bytes, move || Ok(texts.iter().map(|text| tokens(&model, text)).collect())).await
}

/// The tokens of a text, here and now.
pub fn tokens(model: &Model, text: &str) -> Result<Vec<u32>, ApiError> {
    if text.len() > model.most_bytes() {
        return Err(too_long(model));
    }
    Ok(model.tokenizer.encode(text, Special::PROMPT)?)
}

/// The answer to a text that can't fit, however it is cut into tokens.
pub fn too_long(model: &Model) -> ApiError {
    let (bytes, room) = (model.most_bytes(), model.context());
    ApiError::invalid(format!(
        "the prompt has more than {bytes} bytes, which never fit into the {room} tokens that prompt and answer have room \
         for; shorten it, or raise --context or --kv-memory"
    ))
    .about("messages")
    .coded("context_length_exceeded")
}

/// Bytes of all texts in a JSON value.
pub fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + text_bytes(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

/// Token ids given by the client.
pub fn token_prompt(ids: &[Value]) -> Result<Vec<u32>, ApiError> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    ids.iter()
        .map(|value| {
            id(value).ok_or_else(|| ApiError::invalid(format!("{value} is no token id")).about("prompt"))
        })
        .collect()
}
