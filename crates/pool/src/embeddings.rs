//! Vectors and ranks of other servers: bodies of `/v1/embeddings` and `/v1/rerank`, and what their answers hold.
//!
//! ```text
//! texts ─ body ─> POST /v1/embeddings ─> {"data": [{"index": 0, "embedding": ..}], "usage": ..} ─ vectors ─> Vectors
//! query, documents ─ rerank_body ─> POST /v1/rerank ─> {"results": [{"index": 0, "relevance_score": ..}]} ─ scores ─> Scores
//! ```
//! Vectors are asked for in base64, which has about half of the bytes and takes no parsing of numbers; servers that do not know the word send
//! numbers, which are read as well. It must never do I/O. An answer that is not what was asked for is an error, never a vector that
//! belongs to another text.

use ropeway_generation::RequestError;
use serde_json::{Value, json};

use crate::settings::Kind;

/// Where texts are embedded.
pub const EMBEDDINGS: &str = "/v1/embeddings";

/// Where documents are ranked.
pub const RERANK: &str = "/v1/rerank";

/// Texts to be embedded, all written in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmbeddingInput {
    /// Texts.
    Texts(Vec<String>),
    /// Token ids of the server's own model.
    Tokens(Vec<Vec<u32>>),
}

impl EmbeddingInput {
    /// How many texts.
    pub fn len(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.len(),
            Self::Tokens(tokens) => tokens.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all texts; a token counts as four.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.iter().map(String::len).sum(),
            Self::Tokens(tokens) => tokens.iter().map(|tokens| 4 * tokens.len()).sum(),
        }
    }
}

/// What happens to a text that is too long for its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlong {
    /// The request fails.
    Refuse,
    /// The text is cut.
    Cut,
}

/// Vectors of texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vectors {
    /// One per text, in their order.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of all texts, as the server counts them; 0 if it does not.
    pub tokens: usize,
}

/// How well documents fit a query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// One per document, in their order.
    pub scores: Vec<f32>,
    /// Tokens of all pairs, as the server counts them; 0 if it does not.
    pub tokens: usize,
}

/// An answer that is not what was asked for; says what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadAnswer(String);

impl BadAnswer {
    fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// The body of a request for vectors.
pub fn body(
    input: &EmbeddingInput,
    overlong: Overlong,
    kind: Kind,
    model: &str,
) -> Result<Value, RequestError> {
    let input = match input {
        EmbeddingInput::Texts(texts) => json!(texts),
        EmbeddingInput::Tokens(_) if kind == Kind::Ollama => {
            let message = "this model is computed by Ollama, which embeds texts and no token ids; send text";
            return Err(RequestError::invalid(message).at("input"));
        }
        EmbeddingInput::Tokens(tokens) => json!(tokens),
    };
    let mut body = json!({ "model": model, "input": input, "encoding_format": "base64" });
    // Others cut by themselves (Ollama), or say that a text is too long.
    if overlong == Overlong::Cut && kind == Kind::Vllm {
        body["truncate_prompt_tokens"] = json!(-1);
    }
    Ok(body)
}

/// The body of a request to rank documents; an error if servers of this kind can't.
pub fn rerank_body(
    query: &str,
    documents: &[String],
    kind: Kind,
    model: &str,
) -> Result<Value, RequestError> {
    if kind == Kind::Ollama {
        let message =
            "this model is computed by Ollama, which ranks no documents; ask a model of another server";
        return Err(RequestError::invalid(message).at("model"));
    }
    Ok(json!({ "model": model, "query": query, "documents": documents }))
}

/// The vectors of so many texts.
pub fn vectors(answer: &Value, texts: usize) -> Result<Vectors, BadAnswer> {
    let rows =
        answer["data"].as_array().ok_or_else(|| BadAnswer::new("the answer has no list of vectors"))?;
    let mut vectors = vec![Vec::new(); texts];
    for (position, row) in rows.iter().enumerate() {
        let vector = vector(&row["embedding"])?;
        if !vector.iter().all(|number| number.is_finite()) {
            return Err(BadAnswer::new("a vector has numbers that are not finite"));
        }
        *slot(&mut vectors, row, position)? = vector;
    }
    if vectors.iter().any(Vec::is_empty) {
        return Err(BadAnswer::new(format!("{texts} vectors were asked for, and {} came", rows.len())));
    }
    Ok(Vectors { vectors, tokens: tokens(answer) })
}

/// The scores of so many documents. `SGLang` sends the list alone.
pub fn scores(answer: &Value, documents: usize) -> Result<Scores, BadAnswer> {
    let list = [answer, &answer["results"], &answer["data"]].into_iter().find_map(Value::as_array);
    let rows = list.ok_or_else(|| BadAnswer::new("the answer has no list of scores"))?;
    let mut scores = vec![None; documents];
    for (position, row) in rows.iter().enumerate() {
        let score = ["relevance_score", "score"].iter().find_map(|name| row[*name].as_f64());
        let score = score.ok_or_else(|| BadAnswer::new("a document has no score"))?;
        *slot(&mut scores, row, position)? = Some(score as f32);
    }
    let scores: Option<Vec<f32>> = scores.into_iter().collect();
    let missing = || BadAnswer::new(format!("{documents} scores were asked for, and {} came", rows.len()));
    Ok(Scores { scores: scores.ok_or_else(missing)?, tokens: tokens(answer) })
}

/// The place that a row is for: its index, or its position where it has none.
fn slot<'a, T>(places: &'a mut [T], row: &Value, position: usize) -> Result<&'a mut T, BadAnswer> {
    let index = row["index"].as_u64().map_or(position, |index| index as usize);
    let message = || BadAnswer::new(format!("number {index} was not asked for"));
    places.get_mut(index).ok_or_else(message)
}

/// A vector as numbers, or as the little-endian bytes of 32-bit floats in base64.
fn vector(value: &Value) -> Result<Vec<f32>, BadAnswer> {
    let bad = || BadAnswer::new("a vector is neither numbers nor base64");
    match value {
        Value::String(text) => {
            let bytes = base64(text).filter(|bytes| bytes.len() % 4 == 0).ok_or_else(bad)?;
            let floats =
                bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]));
            Ok(floats.collect())
        }
        Value::Array(numbers) => {
            let numbers = numbers.iter().map(|number| number.as_f64().map(|number| number as f32));
            numbers.collect::<Option<_>>().ok_or_else(bad)
        }
        _ => Err(bad()),
    }
}

/// The bytes of a text in base64 (RFC 4648, with or without padding).
fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0_u32;
        for character in group {
            bits = bits << 6 | sextet(*character)?;
        }
        bits <<= 6 * (4 - group.len());
        // A single character is no byte.
        let whole = group.len().checked_sub(1).filter(|whole| *whole > 0)?;
        bytes.extend_from_slice(&bits.to_be_bytes()[1..=whole]);
    }
    Some(bytes)
}

fn sextet(character: u8) -> Option<u32> {
    Some(u32::from(match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

/// Tokens that the server read.
fn tokens(answer: &Value) -> usize {
    let usage = &answer["usage"];
    let counted = usage["prompt_tokens"].as_u64().or_else(|| usage["total_tokens"].as_u64());
    counted.unwrap_or(0) as usize
}

#[cfg(test)]
#[path = "embeddings_tests.rs"]
mod tests;
