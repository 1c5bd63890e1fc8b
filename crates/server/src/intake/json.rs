//! Bodies that are JSON, and what is told about those that can't be read: which field is wrong, and what should stand there.

use std::fmt::{self, Write};

use axum::body::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::ApiError;

/// Bytes of an error that are told: enough for any field's name, while a value may be as long as the body.
const MOST_TOLD: usize = 512;

/// Bytes of a field's place that is told apart from the message.
const LONGEST_PLACE: usize = 128;

/// Bytes of a body, and fields, among which the wrong one is looked for by leaving out one after the other.
const LONGEST_SEARCHED: usize = 16 << 10;
const MOST_SEARCHED: usize = 64;

/// Words of Rust that errors have for what should stand in a field, and those that their readers know.
const WORDS: [(&str, &str); 12] = [
    ("usize", "a whole number, 0 or more"),
    ("u64", "a whole number, 0 or more"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u16", "a whole number from 0 to 65535"),
    ("u8", "a whole number from 0 to 255"),
    ("i64", "a whole number"),
    ("i32", "a whole number from -2147483648 to 2147483647"),
    ("f32", "a number"),
    ("f64", "a number"),
    ("a boolean", "true or false"),
    ("a sequence", "a list"),
    ("a map", "an object"),
];

/// Reads a JSON body. Whatever the content type says: clients forget it.
pub fn parse<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, ApiError> {
    serde_json::from_slice(bytes).map_err(|error: serde_json::Error| {
        let place = error.is_data().then(|| place::<T>(bytes)).flatten();
        unreadable(place.as_deref(), &error)
    })
}

/// Where in the body reading it goes wrong: `messages[1].content`. None where it is the body itself. It is read again, which only those pay for
/// that are wrong.
fn place<T: DeserializeOwned>(bytes: &Bytes) -> Option<String> {
    let mut body = serde_json::Deserializer::from_slice(bytes);
    let error = serde_path_to_error::deserialize::<_, T>(&mut body).err()?;
    let place = error.path().to_string();
    if place == "." { wrong_field::<T>(bytes) } else { Some(place) }
}

/// The field without which reading gets further. Fields of types that others contain as if they were their own (`serde(flatten)`) have no place
/// otherwise.
fn wrong_field<T: DeserializeOwned>(bytes: &Bytes) -> Option<String> {
    let body: Map<String, Value> =
        (bytes.len() <= LONGEST_SEARCHED).then(|| serde_json::from_slice(bytes).ok()).flatten()?;
    let why = |body: &Map<String, Value>| T::deserialize(body).err().map(|error| error.to_string());
    let first = why(&body)?;
    // In their order, as the first wrong one is told.
    let without = |name: &str| -> Map<String, Value> {
        let others = body.iter().filter(|(other, _)| *other != name);
        others.map(|(other, value)| (other.clone(), value.clone())).collect()
    };
    let gets_further = |name: &&String| match why(&without(name)) {
        None => true,
        Some(other) => other != first && !other.starts_with("missing field"),
    };
    body.keys().take(MOST_SEARCHED).find(gets_further).cloned()
}

fn unreadable(place: Option<&str>, error: &serde_json::Error) -> ApiError {
    let mut why = Beginning(String::new());
    // It ends where there is no more room.
    let _ = match place {
        Some(place) => write!(why, "`{place}` can't be read: {error}"),
        None => write!(why, "the body can't be read: {error}"),
    };
    let told = ApiError::invalid(in_plain_words(&why.0)).coded("invalid_json");
    match place.filter(|place| place.len() <= LONGEST_PLACE) {
        Some(place) => told.about(place),
        None => told,
    }
}

/// An error's text, with a reader's word for what was expected.
fn in_plain_words(text: &str) -> String {
    let Some((before, expected)) = text.rsplit_once(", expected ") else { return text.to_owned() };
    let (word, position) = match expected.split_once(" at line ") {
        Some((word, position)) => (word, format!(" (at line {position})")),
        None => (expected, String::new()),
    };
    let known = WORDS.iter().find(|(known, _)| *known == word).map(|(_, plain)| *plain);
    let Some(plain) = known.or(word.starts_with("struct ").then_some("an object")) else {
        return text.to_owned();
    };
    format!("{before}, expected {plain}{position}")
}

/// The beginning of a text.
struct Beginning(String);

impl Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MOST_TOLD.saturating_sub(self.0.len());
        let end = (0..=room.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.0.push_str(&text[..end]);
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only read")]
    struct Asked {
        max_tokens: Option<usize>,
        messages: Vec<Message>,
        #[serde(flatten)]
        sampling: Sampling,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only read")]
    struct Sampling {
        temperature: Option<f32>,
        seed: Option<i64>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only read")]
    struct Message {
        weight: f32,
    }

    fn error(body: &str) -> (String, Option<String>) {
        let error = parse::<Asked>(&Bytes::from(body.to_owned())).expect_err(body);
        (error.message, error.param)
    }

    #[test]
    fn a_wrong_value_is_told_with_its_field_and_what_should_stand_there() {
        let (message, field) = error(r#"{"max_tokens": -1, "messages": []}"#);
        assert_eq!(
            message,
            "`max_tokens` can't be read: invalid value: integer `-1`, expected a whole number, 0 or more (at line 1 column 17)"
        );
        assert_eq!(field.as_deref(), Some("max_tokens"));
        let (message, field) = error(r#"{"messages": [{"weight": 1}, {"weight": "much"}]}"#);
        assert!(
            message.contains("`messages[1].weight`") && message.contains("expected a number"),
            "{message}"
        );
        assert_eq!(field.as_deref(), Some("messages[1].weight"));
        let (message, field) = error(r#"{"messages": "hello"}"#);
        assert!(message.contains("expected a list (at line 1 column"), "{message}");
        assert_eq!(field.as_deref(), Some("messages"));
        let (message, field) = error(r#"{"messages": [], "seed": 1, "temperature": "hot"}"#);
        assert!(
            message.starts_with("`temperature` can't be read") && message.contains("a number"),
            "{message}"
        );
        assert_eq!(field.as_deref(), Some("temperature"));
        let (message, field) = error(r#"{"max_tokens": 1, "messages": [], "temperature": "a", "seed": "b"}"#);
        assert!(message.contains("\"a\""), "the first of two: {message}");
        assert_eq!(field.as_deref(), Some("temperature"));
    }

    #[test]
    fn what_is_no_json_or_lacks_a_field_is_the_body_s_own_fault() {
        for (body, why) in [
            ("{\"messages\": [], ", "EOF"),
            ("{}", "missing field `messages`"),
            ("[] x", "the body"),
            ("null", "an object"),
        ] {
            let (message, field) = error(body);
            assert!(message.starts_with("the body can't be read: ") && message.contains(why), "{message}");
            assert_eq!(field, None);
        }
    }

    #[test]
    fn a_long_value_is_told_in_part() {
        let long = "x".repeat(10_000);
        let (message, field) = error(&format!(r#"{{"max_tokens": "{long}", "messages": []}}"#));
        assert!(
            message.starts_with("`max_tokens` can't be read: ") && message.len() <= MOST_TOLD,
            "{message}"
        );
        assert_eq!(field.as_deref(), Some("max_tokens"));
    }
}
