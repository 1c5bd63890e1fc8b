//! `POST /v1/embeddings`.

use axum::Json;
use ropeway_embed::{EmbedOptions, TooLong};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::OpenAiError;
use crate::ask::{Ask, Wire};
use crate::embedding::{embed, texts};
use crate::error::ApiError;

/// What clients send.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct EmbeddingsRequest {
    model: Option<String>,
    input: Value,
    encoding_format: Option<String>,
    dimensions: Option<usize>,
    user: Option<String>,
    priority: Option<String>,
}

impl Wire for EmbeddingsRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    fn priority(&self) -> Option<&str> {
        self.priority.as_deref()
    }
}

/// How numbers travel.
#[derive(Clone, Copy, Debug)]
enum Encoding {
    Float,
    /// The little-endian bytes of 32-bit floats.
    Base64,
}

pub async fn create(mut ask: Ask) -> Result<Json<Value>, OpenAiError> {
    let request: EmbeddingsRequest = ask.body().await?;
    let encoding = encoding(request.encoding_format.as_deref())?;
    let texts = texts(&request.input)?;
    if texts.is_empty() {
        return Err(ApiError::invalid("input is empty; send at least one text").about("input").into());
    }
    let (model, caller) = ask.embedding_model(&request)?;
    let embedder = model.embedder().await?;
    // OpenAI's clients are told about a text that is too long; nothing is cut in silence.
    let too_long = TooLong::Refuse;
    let options = EmbedOptions { dimensions: request.dimensions, too_long, ..EmbedOptions::default() };
    let embeddings = embed(&embedder, texts, options, &caller).await?;
    let tokens: usize = embeddings.iter().map(|embedding| embedding.tokens).sum();
    let one = |(index, vector): (usize, &[f32])| json!({ "object": "embedding", "index": index, "embedding": encoding.value(vector) });
    let vectors = embeddings.iter().map(|embedding| embedding.vector.as_slice());
    Ok(Json(json!({
        "object": "list",
        "data": vectors.enumerate().map(one).collect::<Vec<_>>(),
        "model": model.name,
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    })))
}

fn encoding(name: Option<&str>) -> Result<Encoding, ApiError> {
    match name {
        None | Some("float") => Ok(Encoding::Float),
        Some("base64") => Ok(Encoding::Base64),
        Some(other) => {
            let what = format!("encoding_format is \"float\" or \"base64\", not {other:?}");
            Err(ApiError::invalid(what).about("encoding_format"))
        }
    }
}

impl Encoding {
    fn value(self, vector: &[f32]) -> Value {
        match self {
            Encoding::Float => vector.into(),
            Encoding::Base64 => {
                let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
                base64(&bytes).into()
            }
        }
    }
}

/// The standard alphabet, padded: three bytes become four letters of 6 bits.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "/+++");
    }
}
