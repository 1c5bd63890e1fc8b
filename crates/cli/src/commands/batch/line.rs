//! What a line is: a request of our own, or a line of an `OpenAI` batch file; and who it is.

use serde_json::Value;

use super::body::{Ask, Defaults};
use super::error::LineError;

/// The kind of request, which decides the form of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Messages, through the model's chat template.
    Chat,
    /// A text that is continued as it is.
    Completion,
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
    pub fn read(number: u64, text: Result<String, LineError>, defaults: &Defaults) -> Line {
        let unnamed = || format!("line-{number}");
        let parsed = text.and_then(|text| {
            serde_json::from_str::<Value>(&text).map_err(|error| LineError::NotJson(error.to_string()))
        });
        match parsed {
            Err(error) => Line { id: unnamed(), ask: Err(error) },
            Ok(value) => {
                Line { id: id_of(&value).unwrap_or_else(unnamed), ask: ask(value, number, defaults) }
            }
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

fn ask(mut line: Value, number: u64, defaults: &Defaults) -> Result<Ask, LineError> {
    if !line.is_object() {
        return Err(LineError::NotJson("it holds another kind of value".into()));
    }
    let Some(body) = line.get_mut("body").map(Value::take) else {
        let chat = line.get("messages").is_some();
        let endpoint = if chat { Endpoint::Chat } else { Endpoint::Completion };
        return Ask::read(line, endpoint, number, defaults);
    };
    Ask::read(body, endpoint_of(&line)?, number, defaults)
}

fn endpoint_of(line: &Value) -> Result<Endpoint, LineError> {
    let url = line.get("url").and_then(Value::as_str).unwrap_or_default();
    match url.trim_end_matches('/').strip_prefix("/v1").unwrap_or(url) {
        "/chat/completions" => Ok(Endpoint::Chat),
        "/completions" => Ok(Endpoint::Completion),
        _ => Err(LineError::UnknownUrl(url.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Line {
        Line::read(3, Ok(text.into()), &Defaults::default())
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
        for (line, endpoint) in [
            (r#"{"prompt": "x"}"#, Endpoint::Completion),
            (r#"{"messages": [{"role": "user", "content": "x"}]}"#, Endpoint::Chat),
            (
                r#"{"method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}"#,
                Endpoint::Completion,
            ),
            (r#"{"url": "/v1/chat/completions", "body": {"messages": [{}]}}"#, Endpoint::Chat),
        ] {
            assert_eq!(read(line).ask.expect(line).endpoint, endpoint, "{line}");
        }
    }

    #[test]
    fn what_is_no_request_is_told_why() {
        for (line, told) in [
            ("{", "no JSON object"),
            ("[1]", "no JSON object"),
            (r#"{"id": "a"}"#, "the line asks nothing"),
            (r#"{"url": "/v1/embeddings", "body": {"input": "x"}}"#, "is not served"),
            (r#"{"url": "/v1/completions", "body": {"messages": [{}]}}"#, "the line asks nothing"),
        ] {
            assert!(refusal(line).contains(told), "{line}: {}", refusal(line));
        }
    }
}
