//! `stop`: texts that end an answer. One text or a list of them.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

/// Texts of a request, whatever a server allows.
const MOST_TEXTS: usize = 1024;

/// Bytes of all texts together. Every prompt of a request has its own copy of them.
const MOST_BYTES: usize = 64 << 10;

/// Texts that end an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopTexts(Vec<String>);

impl StopTexts {
    /// The texts themselves.
    pub fn into_texts(self) -> Vec<String> {
        self.0
    }

    fn push<E: de::Error>(&mut self, text: String) -> Result<(), E> {
        let bytes: usize = self.0.iter().map(String::len).sum();
        if self.0.len() == MOST_TEXTS || bytes + text.len() > MOST_BYTES {
            let what = format!("stop has at most {MOST_TEXTS} texts with {MOST_BYTES} bytes together");
            return Err(E::custom(what));
        }
        self.0.push(text);
        Ok(())
    }
}

impl<'de> Deserialize<'de> for StopTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Stops;
        impl<'de> Visitor<'de> for Stops {
            type Value = StopTexts;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("texts: stop is one text or a list of texts")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<StopTexts, E> {
                self.visit_string(text.to_owned())
            }

            fn visit_string<E: de::Error>(self, text: String) -> Result<StopTexts, E> {
                let mut stops = StopTexts::default();
                stops.push(text)?;
                Ok(stops)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<StopTexts, A::Error> {
                let mut stops = StopTexts::default();
                while let Some(text) = seq.next_element()? {
                    stops.push(text)?;
                }
                Ok(stops)
            }
        }
        deserializer.deserialize_any(Stops)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(stop: Value) -> Result<Vec<String>, String> {
        serde_json::from_value::<StopTexts>(stop)
            .map(StopTexts::into_texts)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn stops_are_one_text_or_several_but_not_any_number() {
        assert_eq!(read(json!("a")), Ok(vec!["a".to_owned()]));
        assert_eq!(read(json!(["a", "b"])), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(read(json!([])), Ok(vec![]));
        assert!(read(json!(7)).unwrap_err().contains("one text or a list of texts"));
        assert!(read(json!(["a", 7])).is_err());
        assert!(read(json!(vec!["a"; MOST_TEXTS + 1])).unwrap_err().contains("at most 1024 texts"));
        assert!(read(json!("a".repeat(MOST_BYTES + 1))).unwrap_err().contains("65536 bytes"));
    }
}
