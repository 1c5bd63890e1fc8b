//! `/v1/embeddings`: texts and their vectors.

use ropeway_batcher::Rejected;
use ropeway_embed::{EmbedError, EmbedOptions, Embedding, TooLong};
use ropeway_generation::{ErrorKind, RequestError};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::texts::{TextInput, Texts, too_many};

/// Texts of one request, as with OpenAI: more would let one client fill the queue.
pub const MOST_TEXTS: usize = 2048;

/// What clients send.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct EmbeddingsRequest {
    /// The model asked for.
    pub model: Option<String>,
    #[schema(value_type = Value)]
    input: Texts<MOST_TEXTS>,
    encoding_format: Option<String>,
    dimensions: Option<usize>,
    /// Who asks.
    pub user: Option<String>,
    /// The class asked for.
    pub priority: Option<String>,
}

/// A request that was read.
#[derive(Clone, Debug)]
pub struct EmbeddingJob {
    /// At least one.
    pub texts: Vec<TextInput>,
    /// How they are embedded.
    pub options: EmbedOptions,
    /// How the vectors are sent.
    pub encoding: Encoding,
}

impl EmbeddingsRequest {
    /// What it asks for.
    pub fn read(self) -> Result<EmbeddingJob, RequestError> {
        let encoding = encoding(self.encoding_format.as_deref())?;
        let texts = self.input.read("input")?;
        if texts.is_empty() {
            return Err(RequestError::invalid("input is empty; send at least one text").at("input"));
        }
        // OpenAI's clients are told about a text that is too long; nothing is cut in silence.
        let too_long = TooLong::Refuse;
        let options = EmbedOptions { dimensions: self.dimensions, too_long, ..EmbedOptions::default() };
        Ok(EmbeddingJob { texts, options, encoding })
    }
}

/// Turns down more texts than one request may have.
pub fn at_most(texts: usize, field: &str) -> Result<(), RequestError> {
    if texts > MOST_TEXTS {
        return Err(too_many(texts, MOST_TEXTS, field));
    }
    Ok(())
}

/// What went wrong with the text of this number.
pub fn failed(error: &EmbedError, index: usize) -> RequestError {
    let numbered = format!("input[{index}]: {error}");
    match error {
        EmbedError::Rejected(Rejected::Full { .. } | Rejected::Stopped) | EmbedError::Device(_) => {
            RequestError::new(ErrorKind::Overloaded, error.to_string())
        }
        EmbedError::TooLong { .. } => {
            RequestError::new(ErrorKind::ContextLengthExceeded, numbered).at("input")
        }
        EmbedError::Text(_) | EmbedError::Empty | EmbedError::BadToken { .. } => {
            RequestError::invalid(numbered).at("input")
        }
        EmbedError::BadDimensions { .. } => RequestError::invalid(error.to_string()).at("dimensions"),
        EmbedError::NotAnEmbedder | EmbedError::NotARanker => {
            RequestError::invalid(error.to_string()).at("model")
        }
        _ => RequestError::new(ErrorKind::Internal, error.to_string()),
    }
}

/// The response with the vectors of all texts, in order.
pub fn response(model: &str, encoding: Encoding, embeddings: &[Embedding]) -> Value {
    let tokens: usize = embeddings.iter().map(|embedding| embedding.tokens).sum();
    let one = |(index, embedding): (usize, &Embedding)| json!({ "object": "embedding", "index": index, "embedding": encoding.value(&embedding.vector) });
    json!({
        "object": "list",
        "data": embeddings.iter().enumerate().map(one).collect::<Vec<_>>(),
        "model": model,
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    })
}

/// How numbers are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JSON numbers.
    Float,
    /// The little-endian bytes of 32-bit floats.
    Base64,
}

fn encoding(name: Option<&str>) -> Result<Encoding, RequestError> {
    match name {
        None | Some("float") => Ok(Encoding::Float),
        Some("base64") => Ok(Encoding::Base64),
        Some(other) => {
            let message = format!("encoding_format is \"float\" or \"base64\", not {other:?}");
            Err(RequestError::invalid(message).at("encoding_format"))
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
    use super::*;

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
