//! Answers that are larger than what was asked: written as JSON part by part, as fast as the client reads them.

use std::fmt::Write;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use ropeway_text::{Detokenizer, PackedTokens, SpecialTokens, Tokenizer};

/// Bytes of a part, unless what it is made of is more.
const PART: usize = 16 << 10;

/// Tokens that are turned into text at once.
const TOKENS: usize = 512;

/// A JSON answer of these pieces, joined to parts. One that fits into a single part has a length, as others have.
pub fn json(mut pieces: impl Iterator<Item = String> + Send + 'static) -> Response {
    let mut parts = std::iter::from_fn(move || {
        let mut part = pieces.next()?;
        while part.len() < PART
            && let Some(more) = pieces.next()
        {
            part.push_str(&more);
        }
        Some(part)
    });
    let first = parts.next().unwrap_or_default();
    let body = match parts.next() {
        None => Body::from(first),
        Some(second) => {
            let all = [first, second].into_iter().chain(parts);
            Body::from_stream(stream::iter(all.map(Ok::<_, std::convert::Infallible>)))
        }
    };
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

/// `1,2,3`
pub fn numbers(tokens: &Arc<PackedTokens>) -> impl Iterator<Item = String> + Send + use<> {
    list(tokens, |id, out| {
        // Writing to a text does not fail.
        let _ = write!(out, "{id}");
    })
}

/// `"a","b"`: the text of each token.
pub fn texts(
    tokens: &Arc<PackedTokens>,
    tokenizer: Tokenizer,
) -> impl Iterator<Item = String> + Send + use<> {
    list(tokens, move |id, out| {
        let text = tokenizer.decode(&[id], SpecialTokens::Keep);
        out.push('"');
        out.push_str(&escaped(&text));
        out.push('"');
    })
}

/// The ids, each as `write` has it, with commas between them.
fn list<W: Fn(u32, &mut String) + Send>(
    tokens: &Arc<PackedTokens>,
    write: W,
) -> impl Iterator<Item = String> + Send + use<W> {
    let tokens = Arc::clone(tokens);
    (0..tokens.blocks()).map(move |block| {
        let mut out = String::new();
        for (index, id) in tokens.block(block).enumerate() {
            if block + index > 0 {
                out.push(',');
            }
            write(id, &mut out);
        }
        out
    })
}

/// The text of these tokens, as it stands within quotes.
pub fn text(tokens: Vec<u32>, tokenizer: &Tokenizer) -> impl Iterator<Item = String> + Send + use<> {
    let mut detokenizer = Some(tokenizer.detokenizer().keeping_special());
    let mut done = 0;
    std::iter::from_fn(move || {
        let next = &tokens[done..tokens.len().min(done + TOKENS)];
        done += next.len();
        if next.is_empty() {
            return detokenizer.take().map(|mut last| escaped(&last.finish()));
        }
        detokenizer.as_mut().map(|detokenizer| escaped(&decoded(next, detokenizer)))
    })
}

fn decoded(tokens: &[u32], detokenizer: &mut Detokenizer) -> String {
    let mut text = String::new();
    for token in tokens {
        text.push_str(detokenizer.push(*token));
    }
    text
}

/// A text as JSON has it within quotes.
fn escaped(text: &str) -> String {
    let mut quoted = serde_json::Value::from(text).to_string();
    quoted.pop();
    quoted.split_off(1.min(quoted.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_all_blocks_make_one_list() {
        let ids: Vec<u32> = (0..20_000).collect();
        let tokens = Arc::new(ids.iter().copied().collect::<PackedTokens>());
        assert!(tokens.blocks() > 1);
        let list = format!("[{}]", numbers(&tokens).collect::<String>());
        assert_eq!(serde_json::from_str::<Vec<u32>>(&list).unwrap(), ids);
        assert_eq!(numbers(&Arc::default()).collect::<String>(), "");
    }

    #[test]
    fn texts_are_escaped_as_json_has_them() {
        for text in ["", "plain", "\"quoted\" \\ \n \u{1} é 🚡"] {
            assert_eq!(format!("\"{}\"", escaped(text)), serde_json::to_string(text).unwrap());
        }
    }

    #[tokio::test]
    async fn an_answer_is_the_same_in_one_part_and_in_many() {
        for pieces in [0, 1, 3, 5000] {
            let all = (0..pieces).map(|number| format!("{number},")).collect::<Vec<_>>();
            let answer = json(all.clone().into_iter()).into_body();
            let is_whole = axum::body::HttpBody::size_hint(&answer).exact().is_some();
            assert_eq!(is_whole, pieces < 5000);
            let read = axum::body::to_bytes(answer, usize::MAX).await.unwrap();
            assert_eq!(read, all.concat());
        }
    }
}
