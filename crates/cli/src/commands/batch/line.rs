//! What a line is: a request of our own, or a line of an `OpenAI` batch file; and who it is.

use ropeway_openai::{ChatCompletionRequest, CompletionRequest, EmbeddingsRequest};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::LineError;

/// What a line asks for, which decides the form of its answer.
#[derive(Debug)]
pub enum Ask {
    /// Messages, through the model's chat template.
    Chat(Box<ChatCompletionRequest>),
    /// Texts that are continued as they are.
    Completion(Box<CompletionRequest>),
    /// Texts that become vectors.
    Embeddings(EmbeddingsRequest),
}

/// The kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Chat,
    Completion,
    Embeddings,
}

/// A line with its name; what it asks may still be wrong.
#[derive(Debug)]
pub struct Line {
    /// What the answer is known by: its own id, or one from its number.
    pub id: String,
    /// What it asks for.
    pub ask: Result<Ask, LineError>,
}

impl Line {
    /// Reads line `number`.
    pub fn read(number: u64, text: Result<String, LineError>) -> Line {
        let unnamed = || format!("line-{number}");
        let parsed = text.and_then(|text| {
            serde_json::from_str::<Value>(&text).map_err(|error| LineError::NotJson(error.to_string()))
        });
        match parsed {
            Err(error) => Line { id: unnamed(), ask: Err(error) },
            Ok(value) => Line { id: id_of(&value).unwrap_or_else(unnamed), ask: ask(value) },
        }
    }
}

fn id_of(line: &Value) -> Option<String> {
    match line.get("custom_id").or_else(|| line.get("id"))? {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

fn ask(mut line: Value) -> Result<Ask, LineError> {
    if !line.is_object() {
        return Err(LineError::NotJson("it holds another kind of value".into()));
    }
    let Some(body) = line.get_mut("body").map(Value::take) else {
        let chat = line.get("messages").is_some();
        return Ask::read(line, if chat { Endpoint::Chat } else { Endpoint::Completion });
    };
    Ask::read(body, endpoint_of(&line)?)
}

fn endpoint_of(line: &Value) -> Result<Endpoint, LineError> {
    let url = line.get("url").and_then(Value::as_str).unwrap_or_default();
    match url.trim_end_matches('/').strip_prefix("/v1").unwrap_or(url) {
        "/chat/completions" => Ok(Endpoint::Chat),
        "/completions" => Ok(Endpoint::Completion),
        "/embeddings" => Ok(Endpoint::Embeddings),
        _ => Err(LineError::UnknownUrl(url.into())),
    }
}

impl Ask {
    fn read(mut body: Value, endpoint: Endpoint) -> Result<Ask, LineError> {
        let (field, told) = match endpoint {
            Endpoint::Chat => ("messages", "\"messages\""),
            Endpoint::Completion => ("prompt", "\"prompt\" or \"messages\""),
            Endpoint::Embeddings => ("input", "\"input\""),
        };
        if body[field].is_null() || body[field].as_array().is_some_and(Vec::is_empty) {
            return Err(LineError::NothingAsked(told));
        }
        // A line is answered whole, whatever it says; left in, it would forbid what can't be streamed.
        if let Some(fields) = body.as_object_mut() {
            fields.remove("stream");
        }
        match endpoint {
            Endpoint::Chat => typed(body).map(Ask::Chat),
            Endpoint::Completion => typed(body).map(Ask::Completion),
            Endpoint::Embeddings => typed(body).map(Ask::Embeddings),
        }
    }
}

fn typed<T: DeserializeOwned>(body: Value) -> Result<T, LineError> {
    serde_json::from_value(body).map_err(|error| LineError::BadField(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Line {
        Line::read(3, Ok(text.into()))
    }

    fn refusal(text: &str) -> String {
        read(text).ask.err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn a_line_is_known_by_its_own_id_or_by_its_number() {
        for (line, id) in [
            (r#"{"custom_id": "a", "id": "b", "prompt": "x"}"#, "a"),
            (r#"{"id": 7, "prompt": "x"}"#, "7"),
            (r#"{"prompt": "x"}"#, "line-3"),
            ("no json", "line-3"),
        ] {
            assert_eq!(read(line).id, id, "{line}");
        }
    }

    #[test]
    fn the_kind_of_request_follows_from_the_url_or_from_what_is_there() {
        let kind = |line: &str| match read(line).ask.expect(line) {
            Ask::Chat(_) => "chat",
            Ask::Completion(_) => "completion",
            Ask::Embeddings(_) => "embeddings",
        };
        for (line, expected) in [
            (r#"{"prompt": "x"}"#, "completion"),
            (r#"{"messages": [{"role": "user", "content": "x"}]}"#, "chat"),
            (r#"{"method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}"#, "completion"),
            (r#"{"url": "/v1/chat/completions", "body": {"messages": [{}]}}"#, "chat"),
            (r#"{"url": "/v1/embeddings", "body": {"input": "x"}}"#, "embeddings"),
        ] {
            assert_eq!(kind(line), expected, "{line}");
        }
    }

    #[test]
    fn what_is_no_request_is_told_why() {
        for (line, told) in [
            ("{", "no JSON object"),
            ("[1]", "no JSON object"),
            (r#"{"id": "a"}"#, "the line asks nothing"),
            (r#"{"url": "/v1/rerank", "body": {"query": "x"}}"#, "is not served"),
            (r#"{"url": "/v1/embeddings", "body": {"input": null}}"#, "the line asks nothing"),
            (r#"{"url": "/v1/completions", "body": "x"}"#, "the line asks nothing"),
            (r#"{"prompt": "x", "n": "two"}"#, "expected usize"),
            (r#"{"prompt": "x", "stop": 7}"#, "stop is one text or a list of texts"),
            (r#"{"url": "/v1/completions", "body": {"messages": [{}]}}"#, "the line asks nothing"),
        ] {
            assert!(refusal(line).contains(told), "{line}: {}", refusal(line));
        }
    }
}
